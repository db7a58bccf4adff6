-- Moves all waiting jobs into one list, then resumes the queue, once per call of a sender.
-- @returns number of jobs still to be moved: call again until 0
-- @include lib: once waiting(join_lists)
-- @include {dialect}/lib: waiting(resume_queue)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local left = join_lists(key, key.wait, tonumber(arg.limit))
  if left == 0 then
    resume_queue(key)
  end
  return left
end)
