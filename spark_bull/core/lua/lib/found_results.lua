-- The reply of `discover`: {'ok', position after the last entry, `more`, and in a dialect with events the last one
-- read, and the number of missing jobs}.
local function found_results(key, arg, more, cursor, missing)
  local call = redis.call
  for _, name in ipairs({'ledger', 'track', 'delivered_early', 'seen_completed', 'seen_failed', 'slices_completed',
    'slices_failed'}) do
    if key[name] then
      call('PEXPIRE', key[name], arg.ttl_ms)
    end
  end
  local base = tonumber(call('HGET', key.track, 'base'))
  return {'ok', base + call('LLEN', key.ledger), more, cursor, missing}
end
