-- @include lib: is_written

-- Publishes an event of a job, unless it is left out; see is_written.
local function publish(arg, event, channel, message)
  if is_written(arg, event) then
    redis.call('PUBLISH', channel, message)
  end
end
