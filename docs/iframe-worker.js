// Search works in a Worker, and a page that is opened from the disk may not start one: a hidden frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = "<!doctype html><title>search</title>"
      this.ready = new Promise(resolve => {
        frame.addEventListener("load", async () => {
          const inside = frame.contentWindow
          inside.postMessage = data => {
            const event = new MessageEvent("message", { data })
            this.dispatchEvent(event)
            this.onmessage?.(event)
          }
          inside.importScripts = async (...urls) => {
            for (const each of urls) await this.load(inside, each)
          }
          await this.load(inside, url)
          resolve(inside)
        }, { once: true })
      })
      this.terminate = () => frame.remove()
      document.documentElement.append(frame)
    }

    load(inside, url) {
      const script = inside.document.createElement("script")
      script.src = url
      return new Promise((resolve, reject) => {
        script.onload = resolve
        script.onerror = () => reject(new Error(`${url} cannot be loaded`))
        inside.document.body.append(script)
      })
    }

    async postMessage(data) {
      const inside = await this.ready
      inside.dispatchEvent(new inside.MessageEvent("message", { data }))
    }
  }
}
