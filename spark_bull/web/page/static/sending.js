// Whether a form is being sent: until its answer is there, the page may be of a job that it removes.
let count = 0;

export const isSending = () => count > 0;

export async function whileSending(send) {
  count += 1;
  try {
    return await send();
  } finally {
    count -= 1;
  }
}
