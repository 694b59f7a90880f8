// Where a view gets its numbers from: a page of one file carries them, a server sends those of the head that is open.
//
// data: { levels, layers: [{ layer, name, kind, heads, tokens, key_tokens, small, side }], scores, opens }, as
// regard/view/page.py describes it. Weights come as round(√w · levels), a byte each, deflated.

import { fromBase64 } from "./dom.js";

const KEPT_HEADS = 40; // unpacked: a head of 512 tokens is a megabyte

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const floats = (text) => new Float32Array(fromBase64(text).buffer);

/**
 * A source: its data, and promises of `weights(index, head)` (n × m numbers), of `small(index)` (all heads of a layer,
 * one after the other) and of `inside(index, head, row, key)`, which is null where the operands are not known.
 * `fetchWeights` and `fetchInside` ask a server.
 */
export function makeSource(data, { fetchWeights, fetchInside } = {}) {
  const squares = Float32Array.from({ length: data.levels + 1 }, (_, step) => (step / data.levels) ** 2);
  const unpacked = async (bytes) => Float32Array.from(await inflated(await bytes), (step) => squares[step]);
  const kept = new Map();
  const once = (name, make) => {
    if (!kept.has(name)) kept.set(name, make());
    if (kept.size > KEPT_HEADS + data.layers.length) kept.delete(kept.keys().next().value);
    return kept.get(name) ?? make();
  };
  return {
    ...data,
    weights: (index, head) => once(`${index}.${head}`, () =>
      unpacked(fetchWeights ? fetchWeights(index, head) : fromBase64(data.layers[index].weights[head]))),
    small: (index) => once(`small ${index}`, () => unpacked(fromBase64(data.layers[index].small))),
    hasInside: Boolean(fetchInside) || Boolean(data.inside?.length),
    async inside(index, head, row, key) {
      const known = fetchInside ? await fetchInside(index, head, row, key)
        : data.inside?.find((one) => one.layer === index && one.head === head);
      if (!known) return null;
      const matrices = ["query", "key", "value", "output", "weights"].map((name) => [name, floats(known[name])]);
      return { ...known, ...Object.fromEntries(matrices) };
    },
  };
}
