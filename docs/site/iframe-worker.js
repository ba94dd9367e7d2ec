// Search runs in a worker, and browsers refuse workers to pages that are opened from a disk. There a hidden frame
// stands in for it. mkdocs-material asks for such a script by this file's name, and would fetch it from elsewhere.
"use strict";

class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const inside = this.frame.contentWindow;
    window.addEventListener("message", (event) => {
      if (event.source === inside) {
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      }
    });
    this.ready = new Promise((resolve) => (this.frame.onload = resolve));
    inside.document.open();
    inside.document.write(`<!doctype html><body><script>
      postMessage = (data) => parent.postMessage(data, "*");
      importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
        const script = document.createElement("script");
        script.src = url;
        script.onload = done;
        document.body.appendChild(script);
      })), Promise.resolve());
    <\/script><script src="${url}"><\/script></body>`);
    inside.document.close();
  }

  postMessage(data) {
    this.ready.then(() => {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
    });
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.Worker = FrameWorker;
}
