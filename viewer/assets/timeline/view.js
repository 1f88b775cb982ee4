/* The window in time, and where a time lies on the canvas. */

export const LABEL_WIDTH = 204, OVERVIEW_HEIGHT = 22, TOP = OVERVIEW_HEIGHT + 26;
const LEAST_SPAN_NS = 20;

export class View {
  constructor(canvas, changed) {
    Object.assign(this, { canvas, changed, t0: 0, t1: 1, makespan: 1 });
  }

  get width() { return Math.max(50, this.canvas.clientWidth - LABEL_WIDTH); }
  get height() { return this.canvas.clientHeight; }
  get right() { return LABEL_WIDTH + this.width; }
  get span() { return this.t1 - this.t0; }
  get scale() { return this.width / this.span; }
  x(t) { return LABEL_WIDTH + (t - this.t0) * this.scale; }
  t(x) { return this.t0 + (x - LABEL_WIDTH) / this.scale; }

  fit() { this.window(-0.01 * this.makespan, 1.01 * this.makespan); }

  window(t0, t1) {
    const span = Math.min(Math.max(t1 - t0, LEAST_SPAN_NS), 1.1 * this.makespan);
    const middle = (t0 + t1) / 2, low = -0.05 * this.makespan, high = 1.05 * this.makespan;
    this.t0 = Math.max(low, Math.min(middle - span / 2, high - span));
    this.t1 = this.t0 + span;
    this.changed();
  }

  zoom(factor, x) {
    const at = this.t(x === undefined ? LABEL_WIDTH + this.width / 2 : Math.max(x, LABEL_WIDTH));
    this.window(at - (at - this.t0) * factor, at + (this.t1 - at) * factor);
  }

  pan(pixels) {
    const shift = pixels / this.scale;
    this.window(this.t0 + shift, this.t1 + shift);
  }

  /* Centre the window on a place of the overview. */
  jump(x) {
    const t = ((x - LABEL_WIDTH) / this.width) * this.makespan, half = this.span / 2;
    this.window(t - half, t + half);
  }
}
