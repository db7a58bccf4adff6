-- @include columns
-- @include fill_opts
-- @include push

-- What Bull 1.1 and 2 tell the queue's other processes about a new job, on a channel without
-- prefix: [who, job].
local function waiting_message(sender, fields, opts, job_id)
  local id = cjson.encode(job_id)
  local with_id = opts == '{}' and '{"jobId":' .. id .. '}'
    or string.find(opts, '"jobId":', 1, true) and opts
    or string.sub(opts, 1, -2) .. ',"jobId":' .. id .. '}'
  return '["' .. sender.token .. '",{"data":' .. fields.data .. ',"opts":' .. with_id
    .. ',"progress":0,"delay":' .. fields.delay .. ',"timestamp":' .. fields.timestamp
    .. ',"attempts":' .. fields.attempts .. ',"attemptsMade":0,"stacktrace":[],"returnvalue":null}]'
end

-- Adds the jobs of a chunk from row `from` on; all of them in one go.
-- Returns {next = first row not added, added, duplicates, ids}.
local function add_bull1(key, base, chunk, from, now, sender)
  local call = redis.call
  local n = chunk.n
  local counter = call('INCRBY', key.id, n - from + 1) - n
  local target = call('EXISTS', key.meta_paused) == 1 and key.paused or key.wait
  local ids, duplicates = {}, 0
  local pushes = new_pushes()
  for i = from, n do
    local job_id = value_of(chunk.jobId, i)
    local custom = job_id ~= nil and job_id ~= false
    if not custom then
      job_id = (counter + i) .. ''
    end
    ids[#ids + 1] = job_id
    local job_key = base .. job_id
    if custom and call('EXISTS', job_key) == 1 then
      duplicates = duplicates + 1
    else
      local timestamp, delay = times_of(chunk, i, now)
      local opts = value_of(chunk.opts, i)
      if chunk.marked then
        opts = fill_opts(opts, timestamp, delay, job_id)
      end
      local attempts = value_of(chunk.attempts, i) or 1
      local data = chunk.data[i]
      call('HSET', job_key, 'data', data, 'opts', opts, 'progress', 0, 'delay', delay,
        'timestamp', timestamp, 'attempts', attempts, 'attemptsMade', 0, 'stacktrace', '[]',
        'returnvalue', 'null')
      local eta = timestamp + delay
      if delay > 0 and eta > now then
        local score = eta * 4096 + bit.band(counter + i, 0xfff)
        call('ZADD', key.delayed, score, job_id)
        call('PUBLISH', key.delayed, score / 4096)
      else
        gather_push(pushes, job_id, value_of(chunk.lifo, i))
        call('PUBLISH', key.jobs, job_id)
      end
      local fields = {data = data, delay = delay, timestamp = timestamp, attempts = attempts}
      call('PUBLISH', 'waiting@' .. sender.queue, waiting_message(sender, fields, opts, job_id))
    end
  end
  flush_pushes(pushes, target)
  return {next = n + 1, added = n - from + 1 - duplicates, duplicates = duplicates, ids = ids}
end
