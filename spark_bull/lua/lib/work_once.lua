-- @include lib/collapsed
-- @include lib/time_ms

-- Settles and claims unless this very call was answered before, and answers. The receipt keeps what was done, not the
-- payloads, which are read again.
-- `settle(outcomes, now)` returns those not taken, {{id, why}, …}; `claim(now, limit)` returns {ids, damaged, limited_ms,
-- next_due, more}, and the rows of fields that it has read; `read(ids)` reads them again.
local function work_once(key, arg, settle, claim, read)
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
    done.columns = rows and collapsed(rows) or collapsed(read(done.ids))
  end
  return cmsgpack.pack(done)
end
