/* Draws the charts. The page has this file behind uPlot, in the same module. The data of a chart are JSON:
   unit      rate, count, size or duration
   begin     seconds since 1970; window: seconds for each value
   ends      whether values are those at the ends of the windows
   stacked, logarithmic, small
   names     of bars, instead of begin and window
   series    {colour, dashed, filled, values} */
{
  const PAPER_PIXELS = 3;
  const MINUTE = 60;
  const HOUR = 60 * MINUTE;
  const DAY = 24 * HOUR;
  const MONTH = 30.5 * DAY;
  const root = document.documentElement;
  const plots = [...document.querySelectorAll(".plot")];
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const multiplied = (factors, sizes) => sizes.flatMap((size) => factors.map((factor) => factor * size));
  const powersOfTen = (low, high) => Array.from({ length: high - low }, (_, n) => Number(`1e${low + n}`));

  const written = (units) => (value) => {
    if (!value) return "0";
    const [size, name] = units.find((unit) => value >= unit[0] * 0.9995) ?? units.at(-1);
    return Number((value / size).toPrecision(3)) + name;
  };
  const count = written([[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);
  const UNITS = {
    rate: { text: count, steps: multiplied([1, 2, 5], powersOfTen(-9, 18)) },
    count: { text: count, steps: multiplied([1, 2, 5], powersOfTen(0, 18)) },
    size: {
      text: written(["EiB", "PiB", "TiB", "GiB", "MiB", "KiB", "B"].map((name, n) => [1024 ** (6 - n), " " + name])),
      steps: Array.from({ length: 62 }, (_, n) => 2 ** n),
    },
    duration: {
      text: written([[DAY, " d"], [HOUR, " h"], [MINUTE, " min"], [1, " s"], [1e-3, " ms"], [1e-6, " µs"]]),
      steps: [
        ...multiplied([1, 2, 5], powersOfTen(-6, 1)),
        ...multiplied([10, 30], [1, MINUTE]), ...multiplied([1, 2, 5], [MINUTE, HOUR]),
        ...multiplied([10], [HOUR]), ...multiplied([1, 2, 5], [DAY, 10 * DAY, 100 * DAY, 1000 * DAY]),
      ],
    },
  };
  const DECADES = [...powersOfTen(-6, 2), MINUTE, 10 * MINUTE, HOUR, 10 * HOUR, 4 * DAY, 40 * DAY, 400 * DAY, 4000 * DAY];
  const TIMES = [
    ...multiplied([1, 2, 5], powersOfTen(-3, 0)), ...multiplied([1, 2, 5, 10, 15, 30], [1, MINUTE]),
    ...multiplied([1, 2, 3, 6, 12], [HOUR]), ...multiplied([1, 2, 7, 14], [DAY]),
    ...multiplied([1, 2, 3, 6, 12, 24, 60, 120, 240, 600], [MONTH]),
  ];

  /* Multiples of the step in UTC, or the beginnings of months. */
  function roundTimes(plot, axis, low, high, step) {
    const monthsOf = (time) => new Date(time * 1000).getUTCFullYear() * 12 + new Date(time * 1000).getUTCMonth();
    const [each, number, time] = step < MONTH
      ? [1, (at) => at / step, (n) => n * step]
      : [step / MONTH, monthsOf, (n) => Date.UTC(2000, n - 24000) / 1000];
    const first = Math.ceil(number(low) / each - 1e-9) * each;
    const times = [];
    for (let n = first; time(n) <= high + 1e-6; n += each) if (time(n) >= low - 1e-6) times.push(time(n));
    return times;
  }

  /* Times in UTC, with the date below the first of a day. */
  function clock(plot, times, axis, space, step) {
    let shown;
    return times.map((time) => {
      const date = new Date(Math.round(time * 1000));
      const at = date.toISOString();
      const month = date.toLocaleDateString("en-US", { month: "short", timeZone: "UTC" });
      const day = `${date.getUTCDate()} ${month}`;
      const year = at.slice(0, 4);
      const [text, below] = step >= 12 * MONTH ? [year, ""]
        : step >= MONTH ? [month, year]
        : step >= DAY ? [day, year]
        : step >= MINUTE ? [at.slice(11, 16), day]
        : step >= 1 ? [at.slice(11, 19), day] : [at.slice(17, 23), at.slice(11, 16)];
      const isNew = below && below !== shown;
      shown = below;
      return isNew ? `${text}\n${below}` : text;
    });
  }

  /* Stripes, because the colours of some layers look the same to the colour-blind. */
  function striped(colour) {
    const tile = Object.assign(document.createElement("canvas"), { width: 4 * pxRatio, height: 4 * pxRatio });
    const context = tile.getContext("2d");
    for (const [fill, width] of [[css("--surface"), 4], [colour + "80", 4], [colour, 2]]) {
      context.fillStyle = fill;
      context.fillRect(0, 0, width * pxRatio, 4 * pxRatio);
    }
    return context.createPattern(tile, "repeat");
  }

  /* Times and values. Stacked values are sums, the highest first, so that each layer is drawn over the one above. */
  function dataOf({ begin, window: length, ends, stacked, series }) {
    let columns = series.map((one) => one.values);
    const x = columns[0].map((_, n) => (length ? begin + (n + (ends ? 1 : 0.5)) * length : n));
    if (ends) {
      x.unshift(begin);
      columns = columns.map((values) => [values[0], ...values]);
    }
    if (stacked) {
      const sums = x.map(() => 0);
      columns = columns.map((values) => values.map((value, n) => (sums[n] += value))).reverse();
    }
    return [x, ...columns];
  }

  /* Values between two unknown ones, which no line shows. */
  const isolated = (plot, n) => {
    const values = plot.data[n];
    return [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null);
  };

  function seriesOf({ stacked, small, names }) {
    return ({ colour, dashed, filled }) => {
      const drawn = css(colour);
      const common = { points: { show: false, filter: isolated, size: 5, fill: drawn, stroke: drawn } };
      if (!stacked) {
        return { ...common, stroke: drawn, width: small ? 1.25 : 1.75, dash: dashed ? [5, 3] : undefined, fill: filled ? drawn + "24" : undefined };
      }
      const paths = names ? uPlot.paths.bars({ size: [0.8, 44] }) : undefined;
      return { ...common, stroke: css("--surface"), width: names ? 0 : 0.75, fill: dashed ? striped(drawn) : drawn, paths };
    };
  }

  function axesOf(chart, unit) {
    if (chart.small) return [{ show: false }, { show: false }];
    const line = { stroke: css("--line"), width: 1 };
    const common = { stroke: css("--text-2"), font: `11px ${css("--font")}`, grid: line, ticks: { show: false }, gap: 6 };
    const across = chart.names
      ? { size: 26, space: 34, incrs: UNITS.count.steps, grid: { show: false }, values: (_, places) => places.map((n) => chart.names[n]) }
      : { size: 36, space: 64, incrs: TIMES, splits: roundTimes, values: clock };
    const size = (_, texts) => 14 + 6.3 * Math.max(1, ...(texts ?? []).map((text) => text?.length ?? 0));
    const upward = { size, space: 24, incrs: unit.steps, values: (_, values) => values.map(unit.text) };
    if (chart.logarithmic) {
      upward.splits = (plot, axis, low, high) => {
        const inside = DECADES.filter((value) => value >= low && value <= high);
        const each = Math.ceil((inside.length * upward.space) / plot.height);
        return inside.filter((_, n) => n % each === 0);
      };
      upward.filter = (_, values) => values;
    }
    return [{ ...common, ...across, border: { show: true, ...line, stroke: css("--line-strong") } }, { ...common, ...upward }];
  }

  function optionsOf(chart, width, height, onPointer) {
    const last = chart.series[0].values.length - 1;
    const across = chart.window ? [chart.begin, chart.begin + (last + 1) * chart.window] : chart.names ? [-0.6, last + 0.6] : [0, Math.max(last, 1)];
    const series = chart.series.map(seriesOf(chart));
    const range = chart.logarithmic
      ? (_, low, high) => [DECADES.findLast((value) => value <= low) ?? low, DECADES.find((value) => value >= high && value > low) ?? high]
      : (_, low, high) => [0, high * 1.06 || 1];
    return {
      width, height,
      padding: chart.small ? [1, 0, 0, 0] : [6, null, 0, null],
      legend: { show: false },
      cursor: chart.small ? { show: false } : {
        y: false, drag: { x: false, y: false }, points: { show: !chart.stacked, size: 7 },
        sync: chart.window ? { key: "time", scales: ["x", null] } : undefined,
      },
      scales: { x: { time: false, range: () => across }, y: { range, distr: chart.logarithmic ? 3 : 1 } },
      axes: axesOf(chart, UNITS[chart.unit]),
      series: [{}, ...(chart.stacked ? series.reverse() : series)],
      hooks: { setCursor: [(plot) => onPointer(plot.cursor.idx)] },
    };
  }

  /* Return a function that shows a row of the table in the legend, or the first text again. */
  function legendOf(figure, ends) {
    if (!figure) return () => {};
    const rows = figure.querySelectorAll("tbody tr");
    const places = [figure.querySelector(".at"), ...figure.querySelectorAll(".legend b")];
    const first = places.map((place) => place.textContent);
    return (at) => {
      const row = at == null ? null : rows[ends ? Math.max(0, at - 1) : at];
      places.forEach((place, n) => { place.textContent = row ? row.children[n].textContent : first[n]; });
    };
  }

  for (const plot of plots) {
    plot.data = JSON.parse(plot.dataset.chart);
    plot.show = legendOf(plot.matches(".chart") ? plot.closest("figure") : null, plot.data.ends);
  }
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const { clientWidth: width, clientHeight: height, chart } = target;
      if (!root.classList.contains("paper") && width && width !== chart.width) chart.setSize({ width, height });
    }
  });

  /* On paper, charts have sizes of their own, more pixels, and the light colours. */
  function draw(onPaper) {
    root.classList.toggle("paper", onPaper);
    pxRatio = onPaper ? PAPER_PIXELS : devicePixelRatio; // a variable of uPlot's
    const sizes = plots.map((plot) => [plot.clientWidth, plot.clientHeight]);
    plots.forEach((plot, n) => {
      plot.chart?.destroy();
      plot.chart = new uPlot(optionsOf(plot.data, ...sizes[n], plot.show), dataOf(plot.data), plot);
    });
  }
  draw(false);
  plots.forEach((plot) => resized.observe(plot));
  addEventListener("beforeprint", () => draw(true));
  addEventListener("afterprint", () => draw(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(false));
}
