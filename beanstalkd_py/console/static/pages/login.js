import { html, useEffect, useState } from "/static/preact.js";
import { post } from "/static/api.js";
import { Icon } from "/static/parts/icons.js";

const messageOf = (error) => {
  if (error.status !== 429) return error.message;
  return "Too many attempts. Try again" + (error.retryAfter ? " in " + error.retryAfter + " seconds." : " later.");
};

export function LoginPage({ onSession }) {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState(null);
  const [sending, setSending] = useState(false);
  useEffect(() => {
    document.title = "Log in · beanstalkd_py console";
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setSending(true);
    setError(null);
    try {
      onSession(await post("/login", { user, password }));
    } catch (failure) {
      setError(messageOf(failure));
      setSending(false);
    }
  };
  return html`<main class="login">
    <form class="login-card form" onSubmit=${submit}>
      <p class="brand"><${Icon} name="brand" />beanstalkd_py</p>
      <h1>Log in to the console</h1>
      <div class="field"><label for="user">User</label>
        <input id="user" name="username" type="text" autocomplete="username" autocapitalize="none" spellcheck=${false}
          required autofocus
          value=${user} onInput=${(event) => setUser(event.currentTarget.value)} /></div>
      <div class="field"><label for="password">Password</label>
        <input id="password" name="password" type="password" autocomplete="current-password" required
          value=${password} onInput=${(event) => setPassword(event.currentTarget.value)} /></div>
      ${error && html`<p class="danger-text" role="alert">${error}</p>`}
      <button class="button primary" disabled=${sending || !user || !password}>${sending ? "Logging in" : "Log in"}</button>
    </form>
  </main>`;
}
