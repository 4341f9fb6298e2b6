/* Line icons of 16 pixels. They are decoration: the text beside them names the page. */
import { html } from "/static/preact.js";

const PATHS = {
  brand: "M3 13h10M3 8.5h7M3 4h3.5",
  overview: "M2.5 13.5h11M4 11V8M8 11V3M12 11V6",
  tubes: "M2.5 4h11M2.5 8h11M2.5 12h11",
  jobs: "M3 3h10v10H3zM5.5 6h5M5.5 8.5h5M5.5 11h3",
  connections: "M5 5.5a2 2 0 1 0 0-.01M11 10.5a2 2 0 1 0 0-.01M6.5 6.8l3 2.6M2.5 13c.3-2 1.2-3 2.5-3M13.500 3c-.3 2-1.200 3-2.500 3",
  dead: "M3 5.500h10M6.500 5.500V3.500h3v2M4.500 5.500l.6 8h5.800l.6-8M7 8v3M9 8v3",
  history: "M2.800 8a5.200 5.200 0 1 0 1.700-3.900M4.500 1.800v2.500H7M8 5.200V8l2 1.500",
  schedules: "M3 4h10v9.500H3zM3 7h10M5.500 2.500v3M10.500 2.500v3",
  policies: "M8 2l5 2v4c0 3-2 5-5 6-3-1-5-3-5-6V4z",
  binlog: "M8 2.500c3 0 5 .8 5 1.800S11 6 8 6s-5-.8-5-1.700 2-1.800 5-1.800M3 4.300v7.400c0 1 2 1.800 5 1.800s5-.8 5-1.800V4.300M3 8c0 1 2 1.800 5 1.800S13 9 13 8",
  replication: "M3 5.500h8.500M9 3l2.500 2.500L9 8M13 10.500H4.500M7 8l-2.500 2.500L7 13",
  doctor: "M2.500 8h2.500l1.500-4 3 8 1.500-4h2.500",
  operations: "M5 3.500l7 4.500-7 4.500z",
  audit: "M4 2.500h8v11l-2-1.300-2 1.300-2-1.300-2 1.300zM6 5.500h4M6 8h4",
  search: "M7 2.800a4.200 4.200 0 1 0 .01 0M10.200 10.200l3.300 3.300",
  menu: "M2.500 4.500h11M2.500 8h11M2.500 11.500h11",
};

export const Icon = ({ name }) =>
  html`<svg class="icon" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} /></svg>`;
