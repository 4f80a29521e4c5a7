// What the theme leaves out for people who use a keyboard or a screen reader.
document$.subscribe(() => {
  document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
  const plain = () => {  // parts of one navigation and buttons of code are no landmarks of their own
    for (const nav of document.querySelectorAll("nav nav:not([role]), nav.md-code__nav:not([role])")) {
      nav.removeAttribute("aria-labelledby");
      nav.removeAttribute("aria-label");
      nav.removeAttribute("aria-expanded");
      nav.setAttribute("role", "none");
    }
  };
  plain();
  new MutationObserver(plain).observe(document.querySelector("main"), { childList: true, subtree: true });
  const reachable = () => {
    for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) {
      if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
      else wide.removeAttribute("tabindex");
    }
  };
  requestAnimationFrame(reachable);
  addEventListener("resize", reachable);
});
