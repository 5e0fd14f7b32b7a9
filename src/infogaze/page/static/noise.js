// The random numbers of a scene, bit for bit those of infogaze/rng.py: hashes of (seed, look, position), on whole numbers of 64 bits.
//
// A number of 64 bits is kept as two halves of 32: BigInt is too slow for the ten thousand numbers behind one gain map.

const GOLDEN = [0x9e3779b9, 0x7f4a7c15];
const FIRST = [0xbf58476d, 0x1ce4e5b9];
const SECOND = [0x94d049bb, 0x133111eb];
const BELOW_ONE = 1 - 2 ** -24; // the largest number of all is rounded up to one

/** The seed of the one scene of an episode that was given this seed: any whole number of 64 bits, as a number, text or BigInt. */
export function sceneSeed(seed) {
  return mixed(mixed(halves(BigInt.asUintN(64, BigInt(seed)))));
}

/** `count` numbers uniform on (0, 1), of a scene's seed and a look. */
export function uniform(scene, look, count) {
  return numbers(scene, 2 * look, count);
}

/** `count` standard normal numbers, by the Box-Muller transform. */
export function normal(scene, look, count) {
  const radius = numbers(scene, 2 * look, count);
  const angle = numbers(scene, 2 * look + 1, count);
  return radius.map((value, i) => Math.sqrt(-2 * Math.log(value)) * Math.cos(2 * Math.PI * angle[i]));
}

function numbers(scene, stream, count) {
  const key = mixed(sum(scene, product(GOLDEN, [0, stream + 1])));
  const found = new Float32Array(count);
  let at = key;
  for (let position = 0; position < count; position++) {
    const bits = mixed(at)[0] >>> 8; // the highest 24
    found[position] = Math.min(Math.fround(bits + 0.5) * 2 ** -24, BELOW_ONE);
    at = sum(at, GOLDEN);
  }
  return found;
}

/** The finaliser of SplitMix64. */
function mixed(x) {
  x = product(shifted(x, 30), FIRST);
  x = product(shifted(x, 27), SECOND);
  return shifted(x, 31);
}

/** x ^ (x >> by), for a shift by less than 32 bits. */
function shifted([high, low], by) {
  return [(high ^ (high >>> by)) >>> 0, (low ^ ((low >>> by) | (high << (32 - by)))) >>> 0];
}

function sum([high, low], [otherHigh, otherLow]) {
  const lower = low + otherLow;
  return [(high + otherHigh + (lower > 0xffffffff ? 1 : 0)) >>> 0, lower >>> 0];
}

function product([high, low], [otherHigh, otherLow]) {
  const [a, b, c, d] = [low & 0xffff, low >>> 16, otherLow & 0xffff, otherLow >>> 16];
  const [ac, ad, bc] = [a * c, a * d, b * c];
  const middle = (ac >>> 16) + (ad & 0xffff) + (bc & 0xffff);
  const carry = b * d + (ad >>> 16) + (bc >>> 16) + (middle >>> 16);
  const upper = carry + (Math.imul(high, otherLow) >>> 0) + (Math.imul(low, otherHigh) >>> 0);
  return [upper >>> 0, ((middle << 16) | (ac & 0xffff)) >>> 0];
}

function halves(x) {
  return [Number(x >> 32n), Number(x & 0xffffffffn)];
}
