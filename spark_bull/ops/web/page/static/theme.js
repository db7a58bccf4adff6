// Runs before the page is drawn, so that it does not flash in the other theme.
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system decides.
}
