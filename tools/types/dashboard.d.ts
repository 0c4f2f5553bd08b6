// What the modules of the dashboard share: how documents are made, and what `h` and `render` keep on nodes.

declare namespace Ui {
  type Child = Node | string | number | false | null | undefined | readonly Child[];

  type NameOf<Tag extends string> = Tag extends `${infer Name}.${string}` ? Name : Tag;

  type ElementOf<Tag extends string> =
    NameOf<Tag> extends keyof HTMLElementTagNameMap
      ? HTMLElementTagNameMap[NameOf<Tag>]
      : NameOf<Tag> extends keyof SVGElementTagNameMap
        ? SVGElementTagNameMap[NameOf<Tag>]
        : HTMLElement;

  type EventFor<Handler> = NonNullable<Handler> extends (event: infer E) => unknown ? E : never;

  /** Attributes and handlers; in a handler, `currentTarget` is the element itself. */
  type Props<Element> = {
    [Name in keyof GlobalEventHandlers]?: (
      event: EventFor<GlobalEventHandlers[Name]> & { currentTarget: Element },
    ) => unknown;
  } & {
    style?: Record<string, string>;
    key?: string | number;
    [attribute: string]: unknown;
  };

  interface Make {
    <Tag extends string>(tag: Tag, props: Props<ElementOf<Tag>>, ...children: Child[]): ElementOf<Tag>;
    <Tag extends string>(tag: Tag, ...children: Child[]): ElementOf<Tag>;
  }

  /** Values in an address: what is empty is left out. */
  type Query = Record<string, string | undefined>;

  /** The parts of a path as one: ["trials", number] is `/trials/${number}`. */
  type Joined<Parts extends unknown[]> = Parts extends [infer First extends string | number, ...infer Rest]
    ? `/${First}${Joined<Rest>}`
    : "";

  type Sent<Method, Address> = Method extends "POST" ? Api.Post<Address> : Api.Patch<Address>;

  type Value = string | number | boolean | null | undefined;
}

// What `h` remembers of a node for `render`.
interface Node {
  /** Tells a node among its siblings. */
  key?: string;
  /** The node that belongs in this place. */
  holds?: Node;
  /** It looks after its own children. */
  isWidget?: boolean;
  handlers?: Set<string>;
  kept?: Set<string>;
}

interface Window {
  switchTheme(): void;
}
