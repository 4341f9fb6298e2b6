/* The session: user, role, version and servers. Buttons ask `may` whether the role permits an operation. */
import { createContext, useContext } from "/static/preact.js";

const ROLES = ["read", "operate", "admin"];
const ADMIN_KINDS = new Set(["truncate", "drain", "compact", "reload", "policy-set", "policy-unset"]);

export const SessionContext = createContext(null);
export const useSession = () => useContext(SessionContext);

export const may = (session, kind) =>
  ROLES.indexOf(session?.role) >= ROLES.indexOf(ADMIN_KINDS.has(kind) ? "admin" : "operate");
