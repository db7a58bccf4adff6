-- @include lib/group_queue

-- Promotes as many delayed jobs of each group as its running jobs have ended: {group -> number}.
local function refill_groups(key, left, promote)
  for group, count in pairs(left) do
    promote_of_group(key, group, count, promote)
  end
end
