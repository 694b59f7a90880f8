// The words of the laboratory in Chinese; those of the view are in words.js.

import { addWords } from "./words.js";

addWords({
  // app.js
  "The server does not answer. Is `regard explore` still running? Start it and load this page again.":
    "服务器没有回应。`regard explore` 还在运行吗？请启动它，再重新载入本页。",
  "the server answered {status}": "服务器返回 {status}",
  // curve.js
  "learn w": "学习 w",
  "other samples": "换一批样本",
  "Samples, the curve through them and its window. Arrow keys: left and right choose a sample, with Shift they move it.":
    "样本、穿过样本的曲线及其窗口。左右方向键选择样本，按住 Shift 则移动样本。",
  "Weight map: rows are queries (look), columns are samples (looked at)": "权重图：行是查询（在看），列是样本（被看）",
  "the numbers behind the pictures": "图中的数据",
  "The curve is a weighted average of the samples: near ones count more. Drag a sample, or slide the bandwidth.":
    "曲线是样本的加权平均，越近的样本权重越大。请拖动一个样本，或移动带宽滑块。",
  kernel: "核",
  bandwidth: "带宽",
  samples: "样本",
  truth: "真实函数",
  curve: "曲线",
  "holds 90 % of the weight": "含 90% 的权重",
  ["bandwidth {bandwidth} (w = {w}) · {count} samples count for the middle · error {error} on the samples, "
    + "{left} on samples left out"]:
    "带宽 {bandwidth}（w = {w}）· 中点处有效样本数 {count} · 样本上的误差 {error}，留一误差 {left}",
  "The curve and its window": "曲线及其窗口",
  "90 % from": "90% 权重的起点",
  to: "终点",
  "samples that count": "有效样本数",
  // formula.js
  "output = Σ softmax( score(query, key) restricted by mask ) · value. Change any number.":
    "输出 = Σ softmax( 评分(查询, 键)，经掩蔽 ) · 值。任何一个数都可以改。",
  temperature: "温度",
  mask: "掩蔽",
  "keys that count": "有效的键数",
  "scaled dot": "缩放点积",
  dot: "点积",
  cosine: "余弦",
  additive: "加性",
  gaussian: "高斯核",
  none: "无",
  lengths: "有效长度",
  queries: "查询",
  keys: "键",
  values: "值",
  "one row less": "减一行",
  "one row more": "加一行",
  "key {index}": "键 {index}",
  "query {index}": "查询 {index}",
  "value {index}": "值 {index}",
  "restricted by the mask": "掩蔽之后",
  // image.js
  "Choose a picture, or drop one: its class by each model, and where each looks.":
    "选一张图，或拖入一张：每个模型判定的类别，以及它看哪里。",
  examples: "示例",
  picture: "图像",
  layer: "层",
  head: "头",
  "the digit {number}": "数字 {number}",
  "all of them": "全部",
  "their mean": "平均",
  "layer {layer}": "第 {layer} 层",
  rollout: "经过所有层的注意力",
  "class activation": "对类别的贡献",
  // texts.js
  "Type a text: every head of a model, what each token looks at, and how a head computes it.":
    "输入一段文字：模型的每一个头，每个词元在看什么，以及一个头如何计算。",
  "Type a sentence: its translation, and which words looked at which.": "输入一个句子：它的译文，以及哪个词看了哪个词。",
  "Type a text: what may come next, what every head adds to it, and what happens without that head.":
    "输入一段文字：接下来可能是什么，每个头贡献了多少，以及去掉这个头会怎样。",
  "Your models, every layer, head and token; and two of them side by side.": "你的模型：每一层、每一个头、每一个词元；也可以并排比较两个模型。",
  ["These models come with regard. To see yours: `regard explore FOLDER`, "
    + "or in Python `regard.explore(model, tokenizer)`."]:
    "这些模型随 regard 附带。要看你自己的：`regard explore FOLDER`，或在 Python 中 `regard.explore(model, tokenizer)`。",
  model: "模型",
  text: "文字",
  "the other text": "另一段文字",
  "the other model": "另一个模型",
  "compare with": "比较",
  nothing: "不比较",
  "another text": "另一段文字",
  "another model": "另一个模型",
  "first text": "第一段",
  "second text": "第二段",
  "words: who looked at whom, over all layers and heads": "词与词：谁看了谁（所有层和头的平均）",
  // writing.js
  "what may come next": "接下来可能是",
  "among the top": "只取前几个",
  all: "全部",
  reset: "重置",
  "what every head adds to the logit": "每个头对 logit 的贡献",
  "what every head adds to the logit of “{word}”": "每个头对 “{word}” 的 logit 的贡献",
  "A click, or Enter, cuts a head; another one brings it back.": "点击或按回车键可去掉一个头，再来一次则恢复。",
  "without {heads}: the answer has changed by {change} nats": "去掉 {heads}：回答改变了 {change} 奈特",
  "bring all back": "全部恢复",
  "no head is cut": "没有去掉任何头",
  "put it behind the text": "接在文字后面",
  "put “{word}” behind the text": "把 “{word}” 接在文字后面",
  cut: "已去掉",
  // offer.js
  "a translator, English to French, on sentences of a small grammar": "用一个小语法生成的句子训练英译法翻译模型",
  "a language model, on Python's own manual": "用 Python 自带的手册训练语言模型",
  "a ViT and a ResNet, on handwritten digits": "用手写数字训练 ViT 和 ResNet",
  "three minutes": "三分钟",
  "some minutes": "几分钟",
  "two minutes": "两分钟",
  training: "训练",
  "train it now": "现在训练",
  ["The small models come with regard. The page can train a larger one itself, {what}, on this machine: "
    + "it takes about {duration}, and the model is kept for later."]:
    "这些小模型随 regard 附带。本页可以在这台机器上自己训练更大的：{what}，大约需要{duration}，模型会保留下来。",
  ", loss {loss}": "，损失 {loss}",
  "{name}: step {step} of {steps}": "{name}：第 {step} 步，共 {steps} 步",
  "{name}: reading": "{name}：正在读取数据",
});
