// A checkpoint becomes the next version of a model.

import { get, path, send } from "../api.js";
import { h } from "../dom.js";
import { byLatest } from "../format.js";
import { dialog, textField } from "./dialog.js";
import { toast, tried, wordsOf } from "./toast.js";

/**
 * @param {string} uuid
 * @param {() => unknown} [done]
 */
export async function register(uuid, done) {
  let models;
  try {
    models = (await get("/api/models")).rows.filter((one) => !one.archived);
  } catch (error) {
    toast(wordsOf(error), "bad");
    return;
  }
  models.sort(byLatest);
  const answer = await dialog(`Register checkpoint ${uuid.slice(0, 8)}`, fields(models), { ok: "Register" });
  if (!answer) return;
  const isNew = !answer.model;
  const name = answer.model || answer.name.trim();
  await tried(
    async () => {
      if (isNew) await send("POST", "/api/models", { name, description: answer.description ?? "" });
      return send("POST", path("models", name, "versions"), { checkpoint_uuid: uuid });
    },
    ({ model, version }) => `Registered: version ${version} of ${model}.`,
  );
  done?.();
}

/** @param {Api.ModelJson[]} models */
function fields(models) {
  const fresh = h(
    "div.stack",
    textField("name", "Name of the new model", { required: true, maxlength: 255, autocomplete: "off" }),
    textField("description", "Description"),
  );
  /** @param {boolean} isNew */
  const show = (isNew) => {
    fresh.hidden = !isNew;
    for (const input of fresh.querySelectorAll("input")) input.disabled = !isNew;
  };
  show(!models.length);
  return [
    h("p.muted", "A registered checkpoint is protected: neither retention rules nor deletion remove it."),
    h(
      "label.labelled.wide-field",
      "Model",
      h(
        "select.select.long",
        { name: "model", "aria-label": "Model", onchange: (event) => show(!event.currentTarget.value) },
        models.map((one) =>
          h("option", { value: one.name }, `${one.name} (next: version ${(one.latest?.number ?? 0) + 1})`),
        ),
        h("option", { value: "" }, "A new model …"),
      ),
    ),
    fresh,
  ];
}
