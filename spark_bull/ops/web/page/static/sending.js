// Whether a form is being sent: until its answer is there, the page may be of a job that it removes.
let count = 0;
let sent = 0;

export const isSending = () => count > 0;

// How many forms were sent so far. A page that was asked for before one of them may be older than its answer.
export const formsSent = () => sent;

export async function whileSending(send) {
  sent += 1;
  count += 1;
  try {
    return await send();
  } finally {
    count -= 1;
  }
}
