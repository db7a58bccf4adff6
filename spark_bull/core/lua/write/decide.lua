-- What was decided on a prepared write, which has queues that no other script can reach together. `write`: its key in the
-- queue that leads. With `gives_up`, or when it was prepared too long ago, an undecided write is given up: it can't be
-- confirmed any more. A decision is final.
-- @returns 'registered', 'given-up' (also if there is no such write) or 'undecided'
-- @include lib: values(time_ms)

local write = call('HMGET', key.write, 'state', 'deadline')
if not write[1] then
  return 'given-up'
end
if write[1] ~= 'prepared' then
  return 'registered'
end
if arg.gives_up == '0' and time_ms() <= tonumber(write[2]) then
  return 'undecided'
end
call('HSET', key.write, 'deadline', 0)
return 'given-up'
