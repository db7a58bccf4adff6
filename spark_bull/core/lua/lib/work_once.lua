-- @include lib: claim_rows collapsed count_work time_ms
-- @include {dialect}/lib: claim_fields(CLAIM_FIELDS) claim_next

-- Settles and claims, unless this call was answered before, and returns the reply. The receipt holds the name of the call
-- and, packed, what was done, without the fields of the claimed jobs: a repeated call reads them again.
-- `settle_jobs(key, arg, outcomes, now)` returns {mine = set of the settled jobs, lost = {{id, reason}, …} of rejected
-- outcomes, may_drain = whether the queue may have drained by it}; `outcomes.worker` is the name under which the jobs were
-- claimed, or ''. `claim_next` returns {ids, damaged, limited_ms, next_due, more}, and the values of CLAIM_FIELDS of each
-- claimed job.
local function work_once(key, arg, settle_jobs)
  local call, now, name = redis.call, time_ms(), arg.call .. '\0'
  local last, done, packed, rows = call('GET', key.receipt), nil, nil, nil
  if last and string.sub(last, 1, #name) == name then
    done = cmsgpack.unpack(string.sub(last, #name + 1))
    done.now = now
  else
    local settled, outcomes = {lost = false, may_drain = false}, {}
    if arg.outcomes ~= '' then
      outcomes = cmsgpack.unpack(arg.outcomes)
      outcomes.worker = arg.worker
      settled = settle_jobs(key, arg, outcomes, now)
    end
    local control = key.control and call('GET', key.control)
    done, rows = claim_next(key, arg, now, control and 0 or tonumber(arg.limit), settled.may_drain)
    done.now, done.columns, done.lost, done.paused = now, false, settled.lost, control == 'pause'
    done.stop = control == 'stop' or control == 'end'
    done.counted = key.counters and count_work(key.counters, #done.ids, outcomes, settled.lost or {}, done.damaged)
      or false
    if key.ledger and #done.ids > 0 then
      local claimed = call('INCRBY', key.ledger_end, #done.ids)
      call('ZADD', key.ledger, claimed, cmsgpack.pack({arg.lock_token, done.ids}))
      call('PEXPIRE', key.ledger, arg.ledger_ttl_ms)
      call('PEXPIRE', key.ledger_end, arg.ledger_ttl_ms)
    end
    packed = cmsgpack.pack(done)
    call('SET', key.receipt, name .. packed, 'PX', arg.ttl_ms)
  end
  if arg.want_jobs == '1' and #done.ids > 0 then
    done.columns = collapsed(rows or claim_rows(arg.base, done.ids, CLAIM_FIELDS), CLAIM_FIELDS)
    packed = nil
  end
  return packed or cmsgpack.pack(done)
end
