local GROUP_PASS = 100
local MAX_PASSES = 20

-- Claims up to `count` of the waiting jobs: `take(count)` processes the next ones while `goes_on()`, and returns
-- whether it has read the last one. Only limits of groups, which hold jobs back, need several passes. Returns the same.
local function take_passes(groups, count, take, goes_on)
  if not groups then
    return take(count)
  end
  local passes, is_over = 0, false
  while not is_over and passes < MAX_PASSES and goes_on() do
    is_over, passes = take(math.max(count, GROUP_PASS)), passes + 1
  end
  return is_over
end
