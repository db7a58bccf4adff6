-- Aborts a write that changes jobs: its rows that are not processed yet change nothing, and leave Redis. A write that is
-- only prepared is aborted while its jobs are looked for: this queue is its only one. All other writes stay as they are.
-- @returns state of the write after that, or '' if there is none
-- @include lib: values(time_ms) writes(close_write)

local write = call('HMGET', key.write, 'state', 'mode', 'search')
local state = write[1] or ''
if write[2] ~= 'manage' or not (state == 'open' or state == 'prepared' and write[3]) then
  return state
end
for _, stage in ipairs(call('LRANGE', key.manifest, 0, -1)) do
  call('UNLINK', stage)
end
call('UNLINK', key.manifest)
call('HDEL', key.write, 'unkept')
close_write(key, arg, 'aborted', time_ms())
return 'aborted'
