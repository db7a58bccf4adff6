-- @include lib: queue_length

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
