/** The wire format of Protocol Buffers, as far as a SentencePiece model needs it. */

/**
 * The fields of a message, in their order.
 *
 * @param {Uint8Array} bytes A serialised message.
 * @returns {Generator<[number: number, value: any]>} A number for a varint, a float or a
 *   double; the bytes of anything else, such as a string or a message.
 */
export function* fields(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = () => {
    for (let value = 0, unit = 1; ; unit *= 128) {
      const byte = view.getUint8(at++);
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const key = varint();
    const field = Math.floor(key / 8);
    switch (key & 7) {
      case 0:
        yield [field, varint()];
        break;
      case 1:
        yield [field, view.getFloat64(at, true)];
        at += 8;
        break;
      case 2: {
        const length = varint();
        if (at + length > bytes.length) throw new Error("a message is cut off");
        yield [field, bytes.subarray(at, at + length)];
        at += length;
        break;
      }
      case 5:
        yield [field, view.getFloat32(at, true)];
        at += 4;
        break;
      default:
        throw new Error(`a message has a field of the unknown kind ${key & 7}`);
    }
  }
}
