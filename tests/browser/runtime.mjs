// node runtime.mjs FOLDER FILE TEXTS OUT: embeddings by onnxruntime-web in WebAssembly, one text at a time.
import { readFileSync, writeFileSync } from 'node:fs';
import { Tokenizer } from '@huggingface/tokenizers';
import * as ort from 'onnxruntime-web/wasm';

const [folder, file, texts, out] = process.argv.slice(2);
const json = (path) => JSON.parse(readFileSync(path));
ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create(readFileSync(file), { executionProviders: ['wasm'] });
const tokenizer = new Tokenizer(json(`${folder}/tokenizer.json`), json(`${folder}/tokenizer_config.json`));
const vectors = [];
for (const text of json(texts)) {
  const { ids } = tokenizer.encode(text);
  const filled = { input_ids: ids, attention_mask: ids.map(() => 1), token_type_ids: ids.map(() => 0) };
  const feed = {};
  for (const name of session.inputNames) {
    feed[name] = new ort.Tensor('int64', BigInt64Array.from(filled[name], BigInt), [1, ids.length]);
  }
  const { data, dims } = (await session.run(feed)).last_hidden_state;
  const mean = new Float32Array(dims[2]);
  data.forEach((value, index) => { mean[index % dims[2]] += value; });
  const norm = Math.hypot(...mean);
  vectors.push(Array.from(mean, (value) => value / norm));
}
writeFileSync(out, JSON.stringify(vectors));
