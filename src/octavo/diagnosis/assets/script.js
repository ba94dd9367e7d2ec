"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (name) => document.getElementById(name);

  // -- packed numbers ---------------------------------------------------------------------------
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const half = (bits) => {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 0) return sign * fraction * 2 ** -24;
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  };
  const halves = (text) => {
    const raw = bytes(text), found = new Float32Array(raw.length / 2);
    for (let i = 0; i < found.length; i++) found[i] = half(raw[2 * i] | (raw[2 * i + 1] << 8));
    return found;
  };
  const show = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString());
  const percent = (share) => `${Math.round(100 * share)} %`;

  // -- colours, read from the style sheet so that light, dark and print agree ----------------------
  const variable = (name) => {
    const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
    const long = text.length === 3 ? [...text].map((c) => c + c).join("") : text;
    return [0, 2, 4].map((i) => parseInt(long.slice(i, i + 2), 16));
  };
  const mix = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * Math.min(1, Math.max(0, t))));
  let palette;
  const readPalette = () => { palette = { field: variable("--field"), ink: variable("--ink"), hot: variable("--hot"), cool: variable("--cool") }; };
  const warm = (t) => (t < 0.55 ? mix(palette.field, palette.hot, t / 0.55) : mix(palette.hot, palette.ink, (t - 0.55) * 1.1));
  const signed = (t) => mix(palette.field, t < 0 ? palette.cool : palette.hot, Math.abs(t));

  // -- a map of rows and columns that is drawn on a canvas and read with mouse or keys -------------
  const tip = byId("tip");
  const views = [];
  class HeatMap {
    // model: {labels, columns, value(r, c), colour(value), describe(r, c), rowHeight, margin, aside(r)}
    constructor(canvas, output) {
      this.canvas = canvas; this.output = output; this.row = -1; this.column = 0; this.model = null;
      canvas.addEventListener("mousemove", (event) => this.hover(event));
      canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
      canvas.addEventListener("click", (event) => { const at = this.at(event); if (at) this.select(...at); });
      canvas.addEventListener("keydown", (event) => this.key(event));
      canvas.addEventListener("focus", () => { if (this.row < 0 && this.model) this.select(0, 0); });
      new ResizeObserver(() => this.paint()).observe(canvas);
      views.push(this);
    }
    set(model) { this.model = model; this.row = -1; this.output.textContent = "Point at the map, or focus it and use the arrow keys."; this.paint(); }
    get left() { return this.model.margin; }
    get right() { return this.model.aside ? 62 : 0; }
    at(event) {
      if (!this.model) return null;
      const box = this.canvas.getBoundingClientRect(), { labels, columns, rowHeight } = this.model;
      const across = box.width - this.left - this.right;
      const column = Math.floor(((event.clientX - box.left - this.left) / across) * columns);
      const row = Math.floor((event.clientY - box.top - 2) / rowHeight);
      if (row < 0 || row >= labels.length || column < 0 || column >= columns) return null;
      return [row, this.strongest(row, column, columns / across)];
    }
    // several columns may share a pixel: the one that was painted there is the strongest of them
    strongest(row, column, perPixel) {
      let best = column;
      for (let c = Math.floor(column - 2 * perPixel); c <= Math.ceil(column + 2 * perPixel); c++)
        if (c >= 0 && c < this.model.columns && Math.abs(this.model.value(row, c)) > 1.5 * Math.abs(this.model.value(row, best))) best = c;
      return best;
    }
    hover(event) {
      const found = this.at(event);
      tip.hidden = !found;
      if (!found) return;
      tip.textContent = this.model.describe(...found);
      const flip = event.clientX > innerWidth - 260;
      tip.style.left = flip ? "" : `${event.clientX + 14}px`;
      tip.style.right = flip ? `${innerWidth - event.clientX + 14}px` : "";
      tip.style.top = `${Math.min(event.clientY + 14, innerHeight - 90)}px`;
    }
    key(event) {
      if (!this.model) return;
      const step = event.shiftKey ? 10 : 1, { labels, columns } = this.model;
      const moves = { ArrowLeft: [0, -step], ArrowRight: [0, step], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -columns], End: [0, columns] };
      const move = moves[event.key];
      if (!move) return;
      event.preventDefault();
      const clamp = (value, most) => Math.min(most - 1, Math.max(0, value));
      this.select(clamp(Math.max(0, this.row) + move[0], labels.length), clamp(this.column + move[1], columns));
    }
    select(row, column) { this.row = row; this.column = column; this.output.textContent = this.model.describe(row, column).replaceAll("\n", " · "); this.paint(); }
    jump() {
      if (!this.model) return;
      let best = [0, 0];
      this.model.labels.forEach((_, r) => { for (let c = 0; c < this.model.columns; c++) if (Math.abs(this.model.value(r, c)) > Math.abs(this.model.value(...best))) best = [r, c]; });
      this.select(...best); this.canvas.focus({ preventScroll: true });
    }
    paint() {
      if (!this.model || !this.canvas.clientWidth) return;
      const { labels, columns, value, colour, rowHeight, aside, accent } = this.model;
      const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth, height = labels.length * rowHeight + 22;
      this.canvas.style.height = `${height}px`;
      this.canvas.width = Math.round(width * ratio); this.canvas.height = Math.round(height * ratio);
      const pen = this.canvas.getContext("2d"), across = width - this.left - this.right;
      pen.scale(ratio, ratio);
      const rgb = (c) => `rgb(${c[0]} ${c[1]} ${c[2]})`;
      pen.font = "11px ui-sans-serif, system-ui, sans-serif"; pen.textBaseline = "middle";
      const pixels = Math.max(1, Math.round(across * ratio));
      const image = pen.createImageData(pixels, 1);
      labels.forEach((label, r) => {
        for (let x = 0; x < pixels; x++) {
          const from = Math.floor((x * columns) / pixels), to = Math.max(from + 1, Math.floor(((x + 1) * columns) / pixels));
          let strongest = value(r, from);
          for (let c = from + 1; c < to; c++) if (Math.abs(value(r, c)) > Math.abs(strongest)) strongest = value(r, c);
          image.data.set([...colour(strongest), 255], 4 * x);
        }
        const first = Math.round((2 + r * rowHeight) * ratio), last = Math.round((1 + (r + 1) * rowHeight) * ratio);
        for (let y = first; y < last; y++) pen.putImageData(image, Math.round(this.left * ratio), y);
        pen.fillStyle = rgb(accent && accent(r) ? palette.hot : palette.ink); pen.textAlign = "right";
        pen.fillText(label.slice(0, 22), this.left - 6, 2 + (r + 0.5) * rowHeight);
        if (aside) { pen.textAlign = "left"; pen.fillStyle = rgb(palette.ink); pen.fillText(aside(r), width - this.right + 6, 2 + (r + 0.5) * rowHeight); }
      });
      pen.fillStyle = rgb(mix(palette.ink, palette.field, 0.35)); pen.textAlign = "center";
      const step = [1, 2, 4, 8, 16, 32, 50, 64, 100, 128, 200, 256, 512].find((s) => columns / s <= across / 48) || 1024;
      for (let c = 0; c < columns; c += step) pen.fillText(String(c), this.left + ((c + 0.5) * across) / columns, height - 9);
      if (this.row >= 0) {
        pen.strokeStyle = rgb(palette.ink); pen.lineWidth = 1.5;
        const w = Math.max(5, across / columns);
        pen.strokeRect(this.left + ((this.column + 0.5) * across) / columns - w / 2, 2 + this.row * rowHeight, w, rowHeight - 1);
      }
    }
  }

  const options = (select, names, chosen) => {
    select.replaceChildren(...names.map((name, i) => new Option(name, i)));
    select.value = String(chosen);
  };

  // -- layer x dimension --------------------------------------------------------------------------
  const layerMap = new HeatMap(byId("map"), byId("map-out"));
  const showLayerMap = (index) => {
    const map = data.maps[index];
    if (!map) return;
    const low = halves(map.min), high = halves(map.max), texts = bytes(map.texts), width = map.width;
    const span = (r, c) => high[r * width + c] - low[r * width + c];
    const all = Float32Array.from(high, (value, i) => value - low[i]).sort();
    const middle = all[all.length >> 1] || 1e-6, most = Math.max(all[all.length - 1], middle * 1.01);
    layerMap.set({
      labels: map.rows.map((name) => name.replace(`.${map.role}`, "")), columns: width, rowHeight: map.rows.length > 14 ? 18 : 26, margin: 78, value: span,
      colour: (value) => warm(Math.log(Math.max(value, middle) / middle) / Math.log(most / middle)),
      describe: (r, c) => `${map.rows[r]}, dimension ${c}\n${show(low[r * width + c])} … ${show(high[r * width + c])}, span ${show(span(r, c))}\noutlier in ${Math.round((texts[r * width + c] / 255) * data.texts)} of ${data.texts} texts`,
    });
  };

  // -- token x dimension --------------------------------------------------------------------------
  const tokenMap = new HeatMap(byId("tokens-map"), byId("token-out"));
  const showTokenMap = (index) => {
    const site = data.tokens.sites[index];
    if (!site) return;
    const values = halves(site.values), width = site.width, { labels, kinds } = data.tokens;
    const most = Math.log1p(values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-6) / (site.std || 1));
    tokenMap.set({
      labels, columns: width, rowHeight: 19, margin: 96, value: (r, c) => values[r * width + c], accent: (r) => kinds[r] !== "word",
      colour: (value) => signed((Math.sign(value) * Math.log1p(Math.abs(value) / (site.std || 1))) / most),
      describe: (r, c) => `${labels[r]} (${kinds[r]}), dimension ${c}\n${show(values[r * width + c])}, ${show((values[r * width + c] - site.mean) / (site.std || 1))} σ from the mean\n${site.name}`,
    });
  };

  // -- attention ----------------------------------------------------------------------------------
  const attention = data.attention, tokens = data.tokens.labels;
  const neurons = attention.layers.length ? new HeatMap(byId("neurons"), byId("neuron-out")) : null;
  let layer = 0, head = 0, query = 0;
  const svg = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const pattern = () => { const n = tokens.length; return layer.weights.subarray(head * n * n, (head + 1) * n * n); };
  const drawHead = () => {
    const n = tokens.length, high = Math.max(16, Math.min(22, 420 / n)), weights = pattern();
    const root = svg("svg", { viewBox: `0 0 360 ${n * high + 8}`, role: "img", "aria-label": `Attention of head ${layer.layer}.${head}` });
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
      const weight = weights[i * n + j] / 255, strong = i === query;
      if (weight < 0.02) continue;
      root.append(svg("line", { x1: 118, y1: (i + 0.5) * high, x2: 242, y2: (j + 0.5) * high, "stroke-width": strong ? 1 + 4 * weight : 3 * weight, "stroke-opacity": strong ? 0.35 + 0.65 * weight : 0.3 * weight }));
    }
    tokens.forEach((token, i) => {
      const left = svg("text", { x: 112, y: (i + 0.5) * high + 4, "text-anchor": "end", class: i === query ? "q on" : "q" }, token.slice(0, 16));
      left.addEventListener("click", () => { byId("query").value = String(i); setQuery(i); });
      root.append(left, svg("text", { x: 248, y: (i + 0.5) * high + 4 }, token.slice(0, 16)));
    });
    byId("head-view").replaceChildren(root);
  };
  const drawNeurons = () => {
    const n = tokens.length, width = layer.width, weights = pattern();
    if (!width) { byId("neuron-out").textContent = "The keys of this model are not a plain product by dimension."; return; }
    const from = (kind, token) => kind.subarray((head * n + token) * width, (head * n + token + 1) * width);
    const q = from(layer.q, query), products = new Float32Array(n * width);
    for (let j = 0; j < n; j++) { const k = from(layer.k, j); for (let c = 0; c < width; c++) products[j * width + c] = q[c] * k[c]; }
    const most = products.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-6);
    neurons.set({
      labels: tokens, columns: width, rowHeight: Math.max(16, Math.min(22, 420 / n)), margin: 88, value: (r, c) => products[r * width + c], accent: (r) => data.tokens.kinds[r] !== "word",
      colour: (value) => signed(Math.sign(value) * Math.sqrt(Math.abs(value) / most)), aside: (r) => percent(weights[query * n + r] / 255),
      describe: (r, c) => `${tokens[query]} → ${tokens[r]}, dimension ${c} of the head\nquery × key ${show(products[r * width + c])}\nattention ${percent(weights[query * n + r] / 255)}`,
    });
  };
  const setQuery = (index) => { query = index; drawHead(); drawNeurons(); };
  const setHead = (index, number) => {
    layer = attention.layers[index]; head = number;
    layer.weights ??= bytes(layer.pattern);
    if (layer.width) { layer.q ??= halves(layer.queries); layer.k ??= halves(layer.keys); }
    const name = `${layer.layer}.${head}`, found = attention.heads[name];
    document.querySelectorAll("#heads button").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.head === name)));
    const shares = Object.entries(found.shares).map(([kind, share]) => `${kind} ${percent(share)}`).join(", ");
    const parts = [`Head ${name}${found.noop ? " (no-op)" : ""}: ${shares}.`];
    if (found.inputs.length) parts.push(`Pulled to special tokens by input dimensions ${found.inputs.map(([d, share, outlier]) => `${d}${outlier ? " (outlier)" : ""} ${percent(share)}`).join(", ")} of the pull; by its own dimensions ${found.keys.map(([d, share]) => `${d} ${percent(share)}`).join(", ")}.`);
    byId("head-out").textContent = parts.join(" ");
    setQuery(query);
  };
  const setUpAttention = () => {
    const grid = byId("heads"), most = Math.max(...attention.layers.map((l) => l.heads));
    grid.style.gridTemplateColumns = `auto repeat(${most}, minmax(0, 1fr))`;
    const cells = [document.createElement("span")];
    for (let h = 0; h < most; h++) { const span = document.createElement("span"); span.textContent = h; cells.push(span); }
    let best = [0, 0, -1];
    attention.layers.forEach((entry, index) => {
      const label = document.createElement("span");
      label.className = "row"; label.textContent = `layer ${entry.layer}`; cells.push(label);
      for (let h = 0; h < most; h++) {
        const found = attention.heads[`${entry.layer}.${h}`], button = document.createElement("button");
        if (!found) { cells.push(document.createElement("span")); continue; }
        button.type = "button"; button.dataset.head = `${entry.layer}.${h}`; button.title = `head ${entry.layer}.${h}: ${percent(found.special)} on special tokens`;
        button.setAttribute("aria-label", button.title); button.className = found.noop ? "noop" : "";
        button.addEventListener("click", () => setHead(index, h));
        cells.push(button);
        if (found.special > best[2]) best = [index, h, found.special];
      }
    });
    grid.replaceChildren(...cells);
    query = Math.min(tokens.length - 1, Math.max(0, Math.floor(tokens.length / 2)));
    options(byId("query"), tokens.map((token, i) => `${i}: ${token}`), query);
    byId("query").addEventListener("change", (event) => setQuery(Number(event.target.value)));
    setHead(best[0], best[1]);
  };
  const paintHeads = () => document.querySelectorAll("#heads button").forEach((button) => {
    const colour = warm(attention.heads[button.dataset.head].special * 0.6);
    button.style.background = `rgb(${colour.join(" ")})`;
  });

  // -- tables that sort and commands that copy -----------------------------------------------------
  const setUpTable = (table) => {
    const body = table.tBodies[0];
    table.querySelectorAll("thead th").forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button"; button.textContent = header.textContent; header.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = header.getAttribute("aria-sort") === "ascending";
        table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
        header.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => { const text = row.cells[column].textContent, value = parseFloat(text); return Number.isNaN(value) || column === 0 ? text : value; };
        const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
        const rows = [...body.rows].sort((a, b) => order(key(a), key(b)) * (down ? -1 : 1));
        body.append(...rows);
      });
    });
  };
  const setUpCopy = (button) => button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied"; } catch {
      getSelection().selectAllChildren(code); button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // -- begin --------------------------------------------------------------------------------------
  const repaint = () => { readPalette(); views.forEach((view) => view.paint()); paintHeads(); };
  readPalette();
  options(byId("map-role"), data.maps.map((map) => map.role.replaceAll("_", " ")), 0);
  byId("map-role").addEventListener("change", (event) => showLayerMap(Number(event.target.value)));
  byId("map-jump").addEventListener("click", () => layerMap.jump());
  const worst = Math.max(0, data.tokens.sites.findIndex((site) => site.name === data.tokens.worst));
  options(byId("token-site"), data.tokens.sites.map((site) => site.name), worst);
  byId("token-site").addEventListener("change", (event) => showTokenMap(Number(event.target.value)));
  byId("token-jump").addEventListener("click", () => tokenMap.jump());
  showLayerMap(0);
  showTokenMap(worst);
  if (attention.layers.length) setUpAttention();
  document.querySelectorAll("table.sortable").forEach(setUpTable);
  document.querySelectorAll("button.copy").forEach(setUpCopy);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("beforeprint", () => { document.querySelectorAll("details").forEach((part) => { part.open = true; }); repaint(); });
  addEventListener("afterprint", repaint);
  repaint();
  document.documentElement.dataset.ready = "yes";
})();
