// A picture file as a scene of a model: decoded by the browser, brought to the scene's size as Pillow does it, to the last bit.

const MOST_PIXELS = 24e6; // of a larger picture the browser makes a smaller one first

/** What is wrong with a picture, as a sentence for the visitor. */
export class PictureError extends Error {}

/** Width, height and the bytes of red, green, blue and alpha of a picture file, white where it is transparent. */
export async function decode(blob) {
  const options = { colorSpaceConversion: "none" };
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob, options);
    const share = Math.sqrt(MOST_PIXELS / (bitmap.width * bitmap.height));
    if (share < 1) {
      const smaller = { resizeWidth: Math.floor(bitmap.width * share), resizeQuality: "high" };
      bitmap = await createImageBitmap(blob, { ...options, ...smaller });
    }
  } catch {
    const name = blob.name ? `“${blob.name}”` : "This file";
    throw new PictureError(`${name} is no picture that this browser can read. PNG, JPEG and WebP will do.`);
  }
  try {
    return pixelsOf(bitmap, bitmap.width, bitmap.height);
  } finally {
    bitmap.close();
  }
}

/** The same of anything that a canvas can draw, such as a frame of the camera. */
export function pixelsOf(source, width, height) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.drawImage(source, 0, 0, width, height);
  return { width, height, data: context.getImageData(0, 0, width, height).data };
}

/** The picture as the scene of a model with this grid and way to fit: bytes, one channel after the other. */
export function sceneOf(picture, grid, fit) {
  const { width, height } = picture;
  if (Math.min(width, height) < grid.glimpseSize) {
    const side = grid.glimpseSize;
    throw new PictureError(
      `This picture has ${width}×${height} pixels. One glimpse of this model is ${side}×${side}, so there is nothing to choose.`,
    );
  }
  const scene = new Uint8Array(grid.channels * grid.height * grid.width);
  planes(picture, grid.channels).forEach((plane, channel) => {
    const fitted = FITS[fit]({ width, height, data: plane }, grid.width, grid.height);
    scene.set(fitted, channel * grid.height * grid.width);
  });
  return scene;
}

function planes({ width, height, data }, channels) {
  const found = Array.from({ length: channels }, () => new Uint8Array(width * height));
  for (let i = 0, at = 0; i < width * height; i++, at += 4) {
    if (channels === 1) {
      found[0][i] = (data[at] * 19595 + data[at + 1] * 38470 + data[at + 2] * 7471 + 0x8000) >> 16;
    } else {
      for (let channel = 0; channel < 3; channel++) found[channel][i] = data[at + channel];
    }
  }
  return found;
}

const FITS = {
  resize: (plane, width, height) => resized(plane, [0, 0, plane.width, plane.height], width, height),

  crop(plane, width, height) {
    const [ratio, wanted] = [plane.width / plane.height, width / height];
    let [wide, high] = [plane.width, plane.height];
    if (ratio > wanted) wide = wanted * plane.height;
    else if (ratio < wanted) high = plane.width / wanted;
    const [left, top] = [(plane.width - wide) * 0.5, (plane.height - high) * 0.5];
    return resized(plane, [left, top, left + wide, top + high], width, height);
  },

  pad(plane, width, height) {
    const [ratio, wanted] = [plane.width / plane.height, width / height];
    let [wide, high] = [width, height];
    if (ratio > wanted) high = rounded((plane.height / plane.width) * width);
    else if (ratio < wanted) wide = rounded((plane.width / plane.height) * height);
    const inner = resized(plane, [0, 0, plane.width, plane.height], wide, high);
    const [left, top] = [rounded((width - wide) * 0.5), rounded((height - high) * 0.5)];
    const found = new Uint8Array(width * height);
    for (let row = 0; row < high; row++) {
      found.set(inner.subarray(row * wide, (row + 1) * wide), (top + row) * width + left);
    }
    return found;
  },
};

/** To the nearest whole number, halves to the even one, as Python does. */
function rounded(value) {
  const down = Math.floor(value);
  const rest = value - down;
  if (rest !== 0.5) return Math.round(value);
  return down % 2 === 0 ? down : down + 1;
}

/** The part of a plane within a box, at another size, by Lanczos windows of three lobes. First across, then down, in 8 bits each. */
function resized(plane, [left, top, right, bottom], width, height) {
  let { data } = plane;
  if (left !== 0 || right !== plane.width || width !== plane.width) {
    data = across(data, { rows: plane.height, cols: plane.width, windows: windowsOf(plane.width, [left, right], width) });
  }
  if (top === 0 && bottom === plane.height && height === plane.height) return data;
  return down(data, { cols: width, windows: windowsOf(plane.height, [top, bottom], height) });
}

const BITS = 22; // behind the point of a weight

/** For each of `count` outputs, where its window begins and the weights in it. */
function windowsOf(size, [from, to], count) {
  const scale = (to - from) / count;
  const stretch = Math.max(scale, 1);
  const reach = 3 * stretch;
  return Array.from({ length: count }, (_, i) => {
    const middle = from + (i + 0.5) * scale;
    const first = Math.max(Math.trunc(middle - reach + 0.5), 0);
    const last = Math.min(Math.trunc(middle + reach + 0.5), size);
    const weights = new Float64Array(last - first);
    for (let at = 0; at < weights.length; at++) weights[at] = lanczos((at + first - middle + 0.5) / stretch);
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return { first, weights: weights.map((weight) => fixed(weight / total)) };
  });
}

function fixed(weight) {
  return Math.trunc(weight * 2 ** BITS + (weight < 0 ? -0.5 : 0.5));
}

function lanczos(x) {
  return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

function sinc(x) {
  return x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
}

function across(data, { rows, cols, windows }) {
  const found = new Uint8ClampedArray(rows * windows.length);
  for (let row = 0, i = 0; row < rows; row++) {
    for (const { first, weights } of windows) {
      let sum = 2 ** (BITS - 1);
      for (let at = 0, from = row * cols + first; at < weights.length; at++) sum += data[from + at] * weights[at];
      found[i++] = Math.floor(sum / 2 ** BITS);
    }
  }
  return found;
}

function down(data, { cols, windows }) {
  const found = new Uint8ClampedArray(cols * windows.length);
  windows.forEach(({ first, weights }, row) => {
    for (let col = 0; col < cols; col++) {
      let sum = 2 ** (BITS - 1);
      for (let at = 0; at < weights.length; at++) sum += data[(first + at) * cols + col] * weights[at];
      found[row * cols + col] = Math.floor(sum / 2 ** BITS);
    }
  });
  return found;
}
