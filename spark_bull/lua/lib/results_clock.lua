-- @include lib/time_ms

-- The times that `discover` uses: the time of Redis, the look-back window, and the bounds of the scan, '' for none. ms.
local function results_clock(arg)
  return {
    now = time_ms(),
    lookback_ms = tonumber(arg.lookback_ms),
    slice_ms = tonumber(arg.slice_ms),
    until_completed = arg.until_completed,
    until_failed = arg.until_failed,
  }
end

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
