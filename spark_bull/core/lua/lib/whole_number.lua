-- @include lib: finite_number

-- The whole number >= 0 in a field of a hash or an option; a fraction is cut off. 0 for anything else.
local function whole_number(text)
  return math.max(0, math.floor(finite_number(text) or 0))
end
