-- @include lib/claim_rows
-- @include lib/collapsed
-- @include lib/time_ms

-- Settles and claims, unless this call was answered before, and returns the reply. The receipt holds what was done, without
-- the fields of the claimed jobs: a repeated call reads them again.
-- `settle(outcomes, now)` returns the rejected outcomes, {{id, reason}, …}; `claim(now, limit)` returns {ids, damaged,
-- limited_ms, next_due, more}, and the values of `fields` of each claimed job.
local function work_once(key, arg, settle, claim, fields)
  local call, now = redis.call, time_ms()
  local last = call('GET', key.receipt)
  local done, rows = last and cmsgpack.unpack(last), nil
  if not done or done.call ~= arg.call then
    local lost = arg.outcomes ~= '' and settle(cmsgpack.unpack(arg.outcomes), now) or false
    local stop = key.control ~= nil and call('EXISTS', key.control) == 1
    done, rows = claim(now, stop and 0 or tonumber(arg.limit))
    done.call, done.lost, done.stop = arg.call, lost, stop
    if key.ledger and #done.ids > 0 then
      call('RPUSH', key.ledger, unpack(done.ids))
    end
    call('SET', key.receipt, cmsgpack.pack(done), 'PX', arg.ttl_ms)
  end
  done.now, done.columns = now, false
  if arg.want_jobs == '1' and #done.ids > 0 then
    done.columns = collapsed(rows or claim_rows(arg.base, done.ids, fields), fields)
  end
  return cmsgpack.pack(done)
end
