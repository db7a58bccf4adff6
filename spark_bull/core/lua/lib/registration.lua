-- The registration of a staged write.
-- @include lib: length_limit(queue_length) numbers(time_ms)

-- Why these queues of a write, or parts of them, can't be registered: the reply of the script, or nil. `plan` has an
-- entry for each: {write, open, watermark or '', stages = {{key, chunks}, …}, intake_closed (key, '': the jobs were added
-- before), shard_layout and epoch ('': no shards), limit (nil: none) = {max_length, jobs, replaces, lists, zsets, writes},
-- see queue_length}.
local function registration_refusal(plan, version)
  local call = redis.call
  local checks = {
    function(entry)
      local done = entry.watermark ~= '' and call('GET', entry.watermark)
      return done and tonumber(done) >= tonumber(version) and {'replayed'}
    end,
    function(entry)
      local layout = entry.shard_layout
      return layout ~= '' and call('HGET', layout, 'epoch') ~= entry.epoch and {'resharded'}
    end,
    function(entry)
      for _, stage in ipairs(entry.stages) do
        if call('HLEN', stage.key) ~= stage.chunks then
          return {'lost', stage.key}
        end
      end
    end,
    function(entry)
      return entry.intake_closed ~= '' and call('EXISTS', entry.intake_closed) == 1 and {'closed', entry.queue}
    end,
    function(entry)
      local limit = entry.limit
      -- The jobs of a prepared write are part of the length.
      if not limit or call('EXISTS', entry.write) == 1 then
        return nil
      end
      -- A write that replaces the queue finds it empty.
      local length = limit.replaces and 0 or queue_length(limit.lists, limit.zsets, entry.open, limit.writes)
      return length + limit.jobs > limit.max_length and {'full', entry.queue, length}
    end,
  }
  for _, check in ipairs(checks) do
    for _, entry in ipairs(plan) do
      local refusal = check(entry)
      if refusal then
        return refusal
      end
    end
  end
end

-- More writes than this are never prepared in a queue at the same time, unless their programs died.
local MOST_PREPARED = 1000

-- Marks other prepared writes of the same application and version in the queue as superseded: only one of them may add
-- the rows. Later versions do not matter, as a confirmed write may be opened after them.
local function supersede(open, write, write_id)
  local call, own, writes = redis.call, redis.call('HMGET', write, 'appId', 'version'), write:sub(1, -#write_id - 1)
  -- The scores of writes that are only prepared are negative.
  for _, other in ipairs(own[1] and call('ZRANGEBYSCORE', open, '-inf', '(0', 'LIMIT', 0, MOST_PREPARED) or {}) do
    local found = call('HMGET', writes .. other, 'state', 'appId', 'version')
    if found[1] == 'prepared' and found[2] == own[1] and found[3] == own[2] then
      call('HSET', writes .. other, 'superseded', 1)
    end
  end
end

-- Adds a registered write to the open writes of its queue. They are committed in the order of their registration, also
-- when the clock is put back.
local function list_open_write(open, write, write_id)
  supersede(open, write, write_id)
  local now, last = time_ms(), redis.call('ZRANGE', open, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', open, last and math.max(now, tonumber(last) + 1) or now, write_id)
  redis.call('PERSIST', open)
end
