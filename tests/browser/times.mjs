// node times.mjs RUNS SHAPES OUT FILE...: medians of milliseconds by onnxruntime-web on one thread, files in turns.
import { readFileSync, writeFileSync } from 'node:fs';
import * as ort from 'onnxruntime-web/wasm';

const [runs, shapes, out, ...files] = process.argv.slice(2);
ort.env.wasm.numThreads = 1;
const sessions = [];
for (const file of files) {
  sessions.push(await ort.InferenceSession.create(readFileSync(file), { executionProviders: ['wasm'] }));
}
const medians = {};
for (const shape of shapes.split(',')) {
  const [batch, length] = shape.split('x').map(Number);
  const filled = { input_ids: 2000n, attention_mask: 1n, token_type_ids: 0n };
  const times = files.map(() => []);
  for (let run = 0; run <= runs; run++) {
    for (const [index, session] of sessions.entries()) {
      const feed = {};
      for (const name of session.inputNames) {
        feed[name] = new ort.Tensor('int64', new BigInt64Array(batch * length).fill(filled[name]), [batch, length]);
      }
      const started = performance.now();
      await session.run(feed);
      if (run > 0) times[index].push(performance.now() - started);
    }
  }
  medians[shape] = times.map((each) => each.sort((a, b) => a - b)[Math.floor(each.length / 2)]);
}
writeFileSync(out, JSON.stringify(medians));
