// The page works without JavaScript; this adds charts, live updates, and dialogs.
import { redrawCharts, startCharts } from "./charts.js";
import { startForms } from "./forms.js";
import { startLive } from "./live.js";
import { startThemeSwitch } from "./theme_switch.js";
import { updateTimes } from "./times.js";

startThemeSwitch(redrawCharts);
startCharts();
startForms();
startLive();
updateTimes();
setInterval(updateTimes, 1_000);
