// One frame of the visitor's camera.

import { pixelsOf } from "./picture.js";

const dialog = document.getElementById("camera");
const video = document.getElementById("camera-view");

export class Camera {
  /** `use` is given the frame, `trouble` a sentence about what went wrong. */
  constructor(use, trouble) {
    Object.assign(this, { use, trouble });
  }

  async open() {
    const devices = navigator.mediaDevices;
    if (!devices?.getUserMedia) {
      this.trouble("This browser gives a page a camera only over https, or on the same computer.");
      return;
    }
    try {
      this.stream = await devices.getUserMedia({ video: { facingMode: "environment" }, audio: false });
    } catch (error) {
      const denied = error.name === "NotAllowedError";
      this.trouble(denied ? "The camera was not allowed. A picture file will do as well." : "There is no camera to use here. A picture file will do as well.");
      return;
    }
    video.srcObject = this.stream;
    document.getElementById("camera-take").onclick = () => this.take();
    document.getElementById("camera-close").onclick = () => dialog.close();
    dialog.onclose = () => this.stop();
    dialog.showModal();
    await video.play();
  }

  /** The middle of what the camera shows, as large as it is. */
  take() {
    const side = Math.min(video.videoWidth, video.videoHeight);
    if (!side) return;
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = side;
    canvas.getContext("2d").drawImage(video, (side - video.videoWidth) / 2, (side - video.videoHeight) / 2);
    const frame = pixelsOf(canvas, side, side);
    dialog.close();
    this.use(frame);
  }

  stop() {
    for (const track of this.stream.getTracks()) track.stop();
    video.srcObject = null;
  }
}
