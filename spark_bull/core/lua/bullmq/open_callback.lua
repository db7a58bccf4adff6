-- Adds the callback of a write, unless it was added before: a parent that waits for its children. The `pending` members
-- of its children are no jobs: it can't start before they are removed.
-- @keys write?
-- @args pending...
-- @returns 1 if the callback was added, 0 if it had been added before
-- @include lib: add_jobs(clock_of fill_opts job_terms) values(number_texts take_numbers time_ms)
-- @include bullmq/lib: events(emit emit_trimmed)

local now, text = time_ms(), number_texts()

local function add_callback()
  local chunk, job_id = cmsgpack.unpack(arg.chunk), arg.job_id
  local timestamp, delay = clock_of(chunk, now)(1)
  take_numbers(key, 1)
  call('HSET', key.job, 'name', chunk.name, 'data', chunk.data[1],
    'opts', fill_opts(chunk.opts, text[timestamp], text[delay]), 'timestamp', text[timestamp], 'delay', text[delay],
    'priority', text[chunk.priority or 0])
  local store_terms = job_terms(key, chunk, 'stc')
  if store_terms then
    store_terms(1, job_id, key.job, timestamp)
  end
  -- These events wake promoters, which look when the next job expires.
  if chunk.expire_after or chunk.expire_at then
    arg.events = 'all'
  end
  emit(key, arg, 'added', 'jobId', job_id, 'name', chunk.name)
  call('ZADD', key.waiting_children, timestamp, job_id)
  emit_trimmed(key, arg, 'waiting-children', 'jobId', job_id)
  call('SADD', key.children, unpack(arg.pending))
end

local is_new = call('SET', key.callback, 1, 'NX', 'PX', arg.ttl_ms) and call('EXISTS', key.job) == 0
if is_new then
  add_callback()
end
if key.write and call('EXISTS', key.write) == 1 then
  call('HSETNX', key.write, 'callbackState', 'open')
end
return is_new and 1 or 0
