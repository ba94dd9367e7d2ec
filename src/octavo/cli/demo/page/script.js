// Everything happens here: the tokenizer and the model run in this page, and nothing is sent anywhere.

const SHOWN = 8;
const CHECKED = 8;
const at = (name) => document.getElementById(name);
const write = (name, value) => { at(name).textContent = value; };

async function fetched(file, onProgress) {
  const reply = await fetch(file);
  if (!reply.ok) throw new Error(`${file} cannot be loaded (${reply.status})`);
  if (!onProgress) return new Uint8Array(await reply.arrayBuffer());
  const parts = [];
  let size = 0;
  for (const reader = reply.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    onProgress(size += value.length);
  }
  const whole = new Uint8Array(size);
  let start = 0;
  for (const part of parts) { whole.set(part, start); start += part.length; }
  return whole;
}

const json = async (file) => JSON.parse(new TextDecoder().decode(await fetched(file)));

class Encoder {
  constructor(about, ort, session, tokenizer) { Object.assign(this, { about, ort, session, tokenizer }); }

  // The embedding of a text, (width,): tokens, hidden states, their pooling, length 1.
  async embed(text) {
    let { ids } = this.tokenizer.encode(text);
    const most = this.about.max_length;
    if (ids.length > most) ids = [...ids.slice(0, most - 1), ids.at(-1)];
    const shape = [1, ids.length];
    const filled = { input_ids: ids, attention_mask: ids.map(() => 1), token_type_ids: ids.map(() => 0) };
    const feed = {};
    for (const name of this.session.inputNames) {
      feed[name] = new this.ort.Tensor('int64', BigInt64Array.from(filled[name], BigInt), shape);
    }
    const hidden = (await this.session.run(feed))[this.session.outputNames[0]];
    return { vector: pooled(hidden, this.about.pooling), tokens: ids.length };
  }
}

function pooled(hidden, pooling) {
  const [, length, width] = hidden.dims;
  const sum = new Float32Array(width);
  const rows = pooling === 'cls' ? 1 : length;
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < width; i++) sum[i] += hidden.data[row * width + i];
  }
  const norm = Math.hypot(...sum) || 1;
  return sum.map((value) => value / norm);
}

function cosine(vector, vectors, row) {
  let sum = 0;
  for (let i = 0; i < vector.length; i++) sum += vector[i] * vectors[row * vector.length + i];
  return sum;
}

function nearest(vector, vectors, count) {
  const scored = Array.from({ length: count }, (_, row) => [cosine(vector, vectors, row), row]);
  return scored.sort((a, b) => b[0] - a[0]).slice(0, SHOWN);
}

function show(found, texts) {
  at('results').replaceChildren(...found.map(([score, row]) => {
    const item = document.createElement('li');
    const number = document.createElement('span');
    const bar = document.createElement('meter');
    number.className = 'score';
    number.textContent = score.toFixed(2);
    bar.value = Math.max(score, 0);
    bar.ariaHidden = 'true';
    item.append(texts[row], number, bar);
    return item;
  }));
}

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

async function load() {
  const started = performance.now();
  const about = await json('data.json');
  write('count', about.texts.length);
  const [ort, { Tokenizer }] = await Promise.all([import(about.runtime), import(about.tokenizers)]);
  ort.env.wasm.wasmPaths = new URL(about.wasm, location.href).href;
  // several threads need headers that most static hosts do not send
  ort.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency || 1) : 1;
  const total = (about.bytes / 1e6).toFixed(1);
  const model = await fetched('model.onnx', (size) => write('status', `Model: ${(size / 1e6).toFixed(1)} of ${total} MB`));
  const vectors = new Float32Array((await fetched('vectors.bin')).buffer);
  const tokenizer = new Tokenizer(await json('tokenizer.json'), await json('tokenizer_config.json'));
  const session = await ort.InferenceSession.create(model, { executionProviders: ['wasm'] });
  const encoder = new Encoder(about, ort, session, tokenizer);
  await encoder.embed(about.texts[0]);
  write('load', ((performance.now() - started) / 1e3).toFixed(1));
  write('size', total);
  write('float', (about.float_bytes / 1e6).toFixed(1));
  const wasm = performance.getEntriesByType('resource').find((entry) => entry.name.endsWith('.wasm'));
  write('runtime', (((wasm && wasm.decodedBodySize) || about.runtime_bytes) / 1e6).toFixed(1));
  write('how', `${about.model}, recipe ${about.recipe}. ONNX Runtime Web ${about.versions['onnxruntime-web']}, WebAssembly with `
    + `${ort.env.wasm.numThreads} thread${ort.env.wasm.numThreads > 1 ? 's' : ''}. The sentences were embedded in Python, with the same file.`);
  return { about, encoder, vectors };
}

async function check({ about, encoder, vectors }) {
  const rows = Math.min(CHECKED, about.texts.length);
  let sum = 0;
  for (let row = 0; row < rows; row++) sum += cosine((await encoder.embed(about.texts[row])).vector, vectors, row);
  write('check', (sum / rows).toFixed(4));
  write('checked', rows);
}

function listen({ about, encoder, vectors }) {
  const times = [];
  let busy = false;
  let shown = null;
  async function search() {
    if (busy) return;
    busy = true;
    // what was typed in the meantime is next, and nothing in between is computed
    for (let text = at('query').value; text !== shown; text = at('query').value) {
      shown = text;
      if (!text.trim()) { at('results').replaceChildren(); write('status', 'Type, and the nearest sentences appear.'); continue; }
      const started = performance.now();
      const { vector, tokens } = await encoder.embed(text);
      const found = nearest(vector, vectors, about.texts.length);
      times.push(performance.now() - started);
      show(found, about.texts);
      write('latency', times.at(-1).toFixed(0));
      write('median', times.length > 2 ? `${median(times).toFixed(0)} ms` : 'later');
      write('tokens', tokens);
      write('status', `The ${SHOWN} nearest of ${about.texts.length} sentences, by cosine.`);
    }
    busy = false;
  }
  at('query').addEventListener('input', search);
  at('examples').replaceChildren(...about.examples.map((example) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = example;
    button.addEventListener('click', () => { at('query').value = example; search(); at('query').focus(); });
    return button;
  }));
  at('query').disabled = false;
  at('query').placeholder = 'Type a question or a thought';
  write('status', 'Type, and the nearest sentences appear.');
}

try {
  const loaded = await load();
  window.octavo = loaded; // for tests, and for whoever opens the console
  await check(loaded);
  listen(loaded);
  document.documentElement.dataset.ready = 'yes';
} catch (error) {
  at('status').className = 'failed';
  write('status', location.protocol === 'file:'
    ? 'Browsers load models from a server only: run python -m http.server in this folder and open http://localhost:8000.'
    : `This page cannot run here: ${error.message}`);
  document.documentElement.dataset.ready = 'failed';
}
