// Search runs in a worker, which browsers refuse to pages opened from disk. There a hidden frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "Search";
      this.ready = new Promise((ready) => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          script.src = url;
          script.addEventListener("load", () => ready(inside));
          inside.document.body.append(script);
        }, { once: true });
      });
      frame.srcdoc = "<!doctype html><html lang='en'><title>Search</title><body></body></html>";
      document.body.append(frame);
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
