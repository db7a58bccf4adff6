-- @include lib: is_true options_of

-- The command that pushes a job to the end of the waiting list that its options name.
local function push_of(opts)
  -- Few jobs have this option, and reading JSON takes time.
  if not string.find(opts or '', 'lifo', 1, true) then
    return 'LPUSH'
  end
  return is_true(options_of(opts).lifo) and 'RPUSH' or 'LPUSH'
end
