'use strict';

// Opens and keeps payloads and results of Bull and BullMQ as spark_bull does with `encryptWith` and `offloadTo`.
// No dependencies. The guide is docs/howto/secrets.md.

const crypto = require('node:crypto');
const fs = require('node:fs/promises');
const path = require('node:path');

const VERSION = 1;
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

class PayloadUnreadable extends Error {
  constructor(message) {
    super(message);
    this.name = 'PayloadUnreadable';
  }
}

class Payloads {
  // queue, prefix: name of the queue, and the prefix of its keys.
  // keys: [{ id, key }], the first one seals; a key is a Buffer of 32 bytes, or a text of these in hex or base64.
  // folder: where large payloads are; above: size in bytes from which results are stored there.
  // store: { read(path), write(path, content) } in place of a folder, for buckets.
  constructor({ queue, prefix = 'bull', keys = [], folder, above = Infinity, store }) {
    this.keys = new Map(keys.map(({ id, key }) => [id, keyOf(id, key)]));
    this.sealing = keys.length ? keys[0].id : null;
    this.prefix = prefix;
    this.queue = queue.replace(/^(.+)\{\d+\}$/, '$1');
    this.place = `${segment(prefix)}/${segment(this.queue)}`;
    this.store = store || (folder === undefined ? null : folderStore(folder));
    this.above = above;
  }

  // A processor that gets jobs with open payloads, and whose results are kept.
  processor(process) {
    return async (job, ...rest) => {
      job.data = await this.open('data', job.data, job.id);
      return this.keep('returnvalue', await process(job, ...rest));
    };
  }

  // The payload ('data') or result ('returnvalue') of a job, as it was before it was kept.
  async open(kind, value, jobId = '?') {
    const subject = `\`${kind}\` of job ${jobId} of queue ${this.queue}`;
    let opened = value;
    if (isKept(opened, '$stored') && this.store) opened = JSON.parse(await this.fetch(opened.$stored, subject));
    if (isKept(opened, '$sealed') && this.keys.size) opened = JSON.parse(this.unseal(opened.$sealed, kind, subject));
    return opened;
  }

  // What a queue has of a payload or result.
  async keep(kind, value) {
    if (value === undefined || (this.sealing === null && !this.store)) return value;
    const text = JSON.stringify(value);
    if (this.sealing === null && /^\{"\$(sealed|stored)"/.test(text)) {
      throw new Error(`expected \`${kind}\` without a member $sealed or $stored, which mark kept payloads`);
    }
    const kept = this.sealing === null ? text : JSON.stringify({ $sealed: this.seal(text, kind) });
    const content = Buffer.from(kept);
    if (!this.store || content.length <= this.above) return JSON.parse(kept);
    const name = sha256(Buffer.concat([crypto.randomBytes(32), content]));
    const where = `${this.place}/${name}`;
    await this.store.write(where, content);
    return { $stored: { v: VERSION, path: where, size: content.length, sha256: sha256(content) } };
  }

  seal(text, kind) {
    const nonce = crypto.randomBytes(NONCE_BYTES);
    const cipher = crypto.createCipheriv('aes-256-gcm', this.keys.get(this.sealing), nonce);
    cipher.setAAD(this.bound(kind));
    const sealed = Buffer.concat([cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
    return { v: VERSION, kid: this.sealing, iv: nonce.toString('base64'), ct: sealed.toString('base64') };
  }

  unseal({ v, kid, iv, ct }, kind, subject) {
    checkVersion(v, subject);
    const key = this.keys.get(kid);
    if (!key) throw new PayloadUnreadable(`expected ${subject} to have one of the keys ${[...this.keys.keys()]}, got ${kid}`);
    const sealed = Buffer.from(String(ct), 'base64');
    try {
      const decipher = crypto.createDecipheriv('aes-256-gcm', key, Buffer.from(String(iv), 'base64'), {
        authTagLength: TAG_BYTES,
      });
      decipher.setAAD(this.bound(kind));
      decipher.setAuthTag(sealed.subarray(sealed.length - TAG_BYTES));
      const text = decipher.update(sealed.subarray(0, sealed.length - TAG_BYTES));
      return Buffer.concat([text, decipher.final()]).toString('utf8');
    } catch {
      throw new PayloadUnreadable(
        `expected ${subject} to open with key ${kid}, it does not: the key of this id is another one, the text is ` +
          'damaged, or it was sealed for another queue or field',
      );
    }
  }

  async fetch({ v, path: where, sha256: wanted }, subject) {
    checkVersion(v, subject);
    const [, name] = String(where).split(`${this.place}/`);
    if (where !== `${this.place}/${name}` || !/^[0-9a-f]{64}$/.test(name)) {
      throw new PayloadUnreadable(`expected ${subject} to be an object in ${this.place}/, got path ${where}`);
    }
    const content = await this.store.read(where);
    if (!content) throw new PayloadUnreadable(`expected ${subject} to be the object ${where}, which is gone`);
    if (sha256(content) !== wanted) {
      throw new PayloadUnreadable(`expected ${subject} to be the object ${where} with the SHA-256 ${wanted}`);
    }
    return content.toString('utf8');
  }

  bound(kind) {
    return Buffer.from(`spark_bull:${kind}:${this.prefix}:${this.queue}`);
  }
}

function isKept(value, mark) {
  return typeof value === 'object' && value !== null && Object.keys(value)[0] === mark && typeof value[mark] === 'object';
}

function checkVersion(version, subject) {
  if (version !== VERSION) throw new PayloadUnreadable(`expected ${subject} to have version ${VERSION}, got ${version}`);
}

function keyOf(id, given) {
  let key = given;
  if (typeof given === 'string') key = Buffer.from(given.trim(), given.trim().length === 2 * KEY_BYTES ? 'hex' : 'base64');
  if (!Buffer.isBuffer(key) || key.length !== KEY_BYTES) {
    throw new Error(`expected key ${id} to have ${KEY_BYTES} bytes, as a Buffer, or as a text in hex or base64`);
  }
  return key;
}

function segment(name) {
  const encoded = encodeURIComponent(name);
  return /^\.+$/.test(encoded) ? encoded.replaceAll('.', '%2E') : encoded;
}

function sha256(content) {
  return crypto.createHash('sha256').update(content).digest('hex');
}

function folderStore(folder) {
  return {
    async read(where) {
      return fs.readFile(path.join(folder, where)).catch((error) => {
        if (error.code === 'ENOENT') return null;
        throw error;
      });
    },
    async write(where, content) {
      const whole = path.join(folder, where);
      const part = `${whole}.${crypto.randomUUID().replaceAll('-', '')}`;
      await fs.mkdir(path.dirname(whole), { recursive: true });
      await fs.writeFile(part, content);
      // Only a whole file has the name that others read.
      await fs.rename(part, whole);
    },
  };
}

module.exports = { Payloads, PayloadUnreadable };
