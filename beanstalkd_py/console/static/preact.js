/* The vendored builds of preact, its hooks and htm as one module. preact's own module build of the
   hooks imports "preact" by its bare name, which needs an inline import map, and the CSP forbids that. */
import htm from "/static/vendor/htm.module.js";

export const { h, render, createContext, Fragment } = window.preact;
export const { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useReducer } =
  window.preactHooks;
export const html = htm.bind(h);
