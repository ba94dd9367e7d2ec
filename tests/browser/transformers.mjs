// node transformers.mjs MODELS NAME TEXTS OUT: embeddings by transformers.js, one text at a time.
import { readFileSync, writeFileSync } from 'node:fs';
import { env, pipeline } from '@huggingface/transformers';

const [models, name, texts, out] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = models;
const extract = await pipeline('feature-extraction', name, { dtype: 'q8', device: 'cpu' });
const vectors = [];
for (const text of JSON.parse(readFileSync(texts))) {
  vectors.push(Array.from((await extract([text], { pooling: 'mean', normalize: true })).data));
}
writeFileSync(out, JSON.stringify(vectors));
