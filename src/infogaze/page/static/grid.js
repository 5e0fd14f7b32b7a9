// Where one may look: the places of a scene, as GlimpseGrid has them, from a model's contract.

export class Grid {
  constructor({ rows, cols, height, width, channels, glimpse_size: glimpseSize }) {
    Object.assign(this, { tops: rows, lefts: cols, height, width, channels, glimpseSize });
    this.rows = rows.length;
    this.cols = cols.length;
    this.count = this.rows * this.cols;
  }

  /** Row and column of a place's top-left pixel. */
  location(place) {
    return [this.tops[Math.floor(place / this.cols)], this.lefts[place % this.cols]];
  }

  /** The pixels of the scene that stand for a place on a map: those nearer to its middle than to another's, as top, left, bottom, right. */
  cell(place) {
    const half = this.glimpseSize / 2;
    const [row, col] = [Math.floor(place / this.cols), place % this.cols];
    const [top, bottom] = between(this.tops, row);
    const [left, right] = between(this.lefts, col);
    return [top + half, left + half, bottom + half, right + half];
  }

  /** The glimpse at a place of a scene of bytes, one channel after the other, as numbers in [0, 1]. */
  glimpse(scene, place) {
    const [top, left] = this.location(place);
    const side = this.glimpseSize;
    const found = new Float32Array(this.channels * side * side);
    let i = 0;
    for (let channel = 0; channel < this.channels; channel++) {
      for (let row = top; row < top + side; row++) {
        for (let col = left; col < left + side; col++) {
          found[i++] = scene[(channel * this.height + row) * this.width + col] / 255;
        }
      }
    }
    return found;
  }

  /** Which pixels of the scene these places show. */
  seen(places) {
    const mask = new Uint8Array(this.height * this.width);
    for (const place of places) {
      const [top, left] = this.location(place);
      for (let row = top; row < top + this.glimpseSize; row++) {
        mask.fill(1, row * this.width + left, row * this.width + left + this.glimpseSize);
      }
    }
    return mask;
  }
}

/** Half way to the neighbours on both sides; at an end as far as to the one neighbour. */
function between(starts, i) {
  const before = i > 0 ? starts[i] - starts[i - 1] : (starts[i + 1] ?? starts[i] + 1) - starts[i];
  const after = i < starts.length - 1 ? starts[i + 1] - starts[i] : before;
  return [starts[i] - before / 2, starts[i] + after / 2];
}
