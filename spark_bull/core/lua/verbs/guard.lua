-- Looks at the queue for a guard, once per call of a sender: pauses it if the condition is met, and resumes it when the
-- pause of a guard is over. A look within `interval_ms` of the last one counts nothing.
-- @returns {paused, resumed or "", why, 1 if jobs are still to be moved: call again}
-- @keys active delayed paused prioritized wait waiting_children
-- @include lib: guard(guard_mark guard_window) once values(time_ms) waiting(join_lists)
-- @include {dialect}/lib: waiting(pause_mark pause_queue resume_queue)

local limit, now = tonumber(arg.limit), tonumber(arg.now) or time_ms()

local function left(jobs)
  return jobs > 0 and 1 or 0
end

-- Ends the pause of a guard, or goes on with it.
local function during_pause(pause)
  if now < pause.ends then
    local jobs = pause_queue(key, arg, limit, false)
    pause_mark.write(key, pause.mark)
    return {'', pause.why, left(jobs)}, true
  end
  local jobs = join_lists(key, key.wait, limit)
  if jobs > 0 then
    return {'', pause.why, 1}, true
  end
  resume_queue(key)
  call('DEL', key.guard)
  return {'resumed', pause.why, 0}
end

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local mark = pause_mark.read(key)
  if mark then
    guard_window.forget(key)
    local pause = guard_mark.read(mark)
    if pause then
      return during_pause(pause)
    end
    return {'', '', 0}, true
  end
  local why = guard_window.look(key, arg, now)
  if not why then
    return {'', '', 0}, true
  end
  local ends = now + tonumber(arg.resume_after_ms)
  local jobs = pause_queue(key, arg, limit, true)
  pause_mark.write(key, guard_mark.make(ends, why))
  guard_window.rest(key, arg, ends)
  return {'paused', why, left(jobs)}
end)
