// The words of the view in the language of the page: English in the code, Chinese from this table.

import { filled } from "./dom.js";

const CHINESE = {
  "layers and heads": "层与头",
  "layer ↓ head →": "层 ↓ 头 →",
  "layer {layer}, head {head}": "第 {layer} 层，第 {head} 头",
  heads: "头",
  "one head": "一个头",
  "by layer": "按层排列",
  "previous token": "前一词元",
  "duplicate token": "相同词元",
  induction: "归纳",
  "first token": "首词元",
  "fixed offset": "固定距离",
  alignment: "对齐",
  "scale of the colours": "颜色的尺度",
  row: "按行",
  weight: "权重",
  mean: "平均",
  log: "对数",
  "relative to the largest weight of each row": "相对于每行最大的权重",
  "from 0 to 1, so that heads can be compared": "从 0 到 1，便于比较各个头",
  "logarithmic, from 0.001 to 1": "对数尺度，从 0.001 到 1",
  "0|largest of the row": "0|行内最大",
  "0|1": "0|1",
  "0.001|1": "0.001|1",
  view: "视图",
  lines: "连线",
  map: "热图",
  inside: "内部",
  less: "较少",
  more: "较多",
  "save what is shown": "保存所见",
  "the whole text; drag the window": "全文；可拖动窗口",
  "the map of this head": "这个头的热图",
  "the whole text, {n} tokens, and the window on it": "全文共 {n} 个词元，以及其上的窗口",
  "{title}: what every token looks at": "{title}：每个词元在看什么",
  "no token is chosen: arrow keys choose one": "尚未选择词元：用方向键选择",
  token: "词元",
  "the text": "文字",
  ["Point at a token to see what it looks at; click to keep it. "
    + "Shift-click a head, or press Space on it, to see several at once."]:
    "指向一个词元，看它在看什么；点击可固定。按住 Shift 点击一个头，或在其上按空格键，可同时看几个头。",
  "“{token}” looks at": "“{token}” 在看",
  "“{token}” is looked at by": "在看 “{token}” 的有",
  "(sink)": "（汇）",
  "close {label}": "关闭{label}",
  "of each row the {kept} largest weights are in this page": "本页只存每行最大的 {kept} 个权重",
  "the numbers": "数据",
  "What “{token}” looks at": "“{token}” 在看什么",
  "What every token looks at most": "每个词元看得最多的",
  query: "查询",
  key: "键",
  position: "位置",
  self: "自注意力",
  causal: "因果",
  cross: "交叉注意力",
  looks: "在看",
  "is looked at": "被看",
  "key (is looked at) →": "键（被看）→",
  "query (looks) ↓": "查询（在看）↓",
  "← query (looks)": "← 查询（在看）",
  "light or dark": "浅色或深色",
  after: "之后",
  before: "之前",
  "{first} minus {second}": "{first}减{second}",
  "small pictures: {minus}": "小图：{minus}",
  "The operands of this head are not in this page: it has those of the head that it opens with.":
    "本页没有这个头的操作数，只有打开时那个头的。",
  // inside.js
  "scores from queries and keys": "由查询和键得到评分",
  "weights from scores and mask": "由评分和掩蔽得到权重",
  "output from weights and values": "由权重和值得到输出",
  "queries Q": "查询 Q",
  "keys K": "键 K",
  "values V": "值 V",
  scores: "评分",
  score: "评分",
  "mask (grey: −∞)": "掩蔽（灰：−∞）",
  weights: "权重",
  output: "输出",
  others: "其余",
  "dimension of q and k": "q 和 k 的维度",
  "dimension of v": "v 的维度",
  "scores = scale · q·k": "评分 = 系数 · q·k",
  "weights = softmax(scores + mask)": "权重 = softmax(评分 + 掩蔽)",
  "output = Σ weight · value": "输出 = Σ 权重 · 值",
  "the numbers of this query": "这个查询的数据",
  ["This model adds something to its scores, such as a position bias: "
    + "the weights are its own, and not the softmax of these scores alone."]:
    "这个模型在评分上另加了一项，例如位置偏置：这里的权重是模型自己的，不只是这些评分的 softmax。",
  "the product of query and key in every dimension": "查询与键在每一维上的乘积",
  "q · k by dimension, “{query}” · “{key}”": "逐维的 q · k，“{query}” · “{key}”",
  ["q[{d}] · k[{d}] = {q} · {k} = {term}. Over all dimensions q·k = {product}, "
    + "and the score is {scale} · {product} = {score}."]:
    "q[{d}] · k[{d}] = {q} · {k} = {term}。各维相加 q·k = {product}，评分为 {scale} · {product} = {score}。",
  "“{query}” may not look at “{key}”: its score becomes −∞ and its weight 0.":
    "“{query}” 不可看 “{key}”：评分变为 −∞，权重为 0。",
  "“{query}” → “{key}”: e^{score} / Σ e^score = {weight}.": "“{query}” → “{key}”：e^{score} / Σ e^评分 = {weight}。",
  "output of “{query}”, dimension {c}": "“{query}” 的输出，第 {c} 维",
  "What “{query}” does with every key": "“{query}” 与每个键",
};
let isChinese = document.documentElement.lang.startsWith("zh");

/** A text in the language of the page, with the values of its braces. */
export const t = (text, values) => filled(isChinese ? CHINESE[text] ?? text : text, values);

/** More words, of a page around the view. */
export const addWords = (words) => Object.assign(CHINESE, words);

/** Another language: "en", "zh-Hans". */
export const setLanguage = (language) => { isChinese = language.startsWith("zh"); };
