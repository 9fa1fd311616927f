// Looks at the page as it is drawn and returns what is wrong with it, one sentence each:
// texts that overlap, are cut, are too small or too faint, and a page wider than its window.
(() => {
  const problems = [];
  const texts = []; // {text, rect, element}
  const visible = (e) => e.checkVisibility({ contentVisibilityAuto: true, opacityProperty: true, visibilityProperty: true });
  const name = (t) => JSON.stringify(t.trim().replace(/\s+/g, ' ').slice(0, 40));
  document.querySelectorAll('svg text').forEach((e) => {
    if (visible(e) && e.getClientRects().length) texts.push({ text: e.textContent, rect: e.getBoundingClientRect(), element: e });
  });
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; (n = walk.nextNode());) {
    const e = n.parentElement;
    if (!n.data.trim() || e.closest('svg, script, style') || !visible(e)) continue;
    const range = document.createRange();
    range.selectNodeContents(n);
    for (const rect of range.getClientRects()) if (rect.width > 0) texts.push({ text: n.data, rect, element: e });
  }

  // Overlaps: sorted by their tops, a text can only meet those that begin before its end.
  texts.sort((a, b) => a.rect.top - b.rect.top);
  const slack = 1.5; // of the boxes of letters, which are larger than what is drawn
  for (let i = 0; i < texts.length; i++) {
    const a = texts[i].rect;
    for (let j = i + 1; j < texts.length && texts[j].rect.top < a.bottom - slack; j++) {
      const b = texts[j].rect;
      if (a.left < b.right - slack && b.left < a.right - slack && a.top < b.bottom - slack && hidden(texts[i]) === hidden(texts[j])) {
        problems.push(`overlap: ${name(texts[i].text)} and ${name(texts[j].text)}`);
      }
    }
  }
  // scrolls is the box that a reader can scroll to see the rest of what is in it.
  function scrolls(e) {
    for (; e && e !== document.body; e = e.parentElement) {
      if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX)) return e;
    }
    return null;
  }
  // hidden says that a text lies outside the box that scrolls, where it is not drawn.
  function hidden(t) {
    const box = scrolls(t.element);
    return !!box && t.rect.left >= box.getBoundingClientRect().right;
  }

  // Cuts: at the edge of a drawing, of a box that hides the rest, of the window.
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) problems.push(`the page is ${document.documentElement.scrollWidth} pixels wide, wider than the window of ${width}`);
  for (const t of texts) {
    const svg = t.element.closest('svg');
    if (svg) {
      const box = svg.getBoundingClientRect(), r = t.rect;
      if (r.left < box.left - 0.5 || r.right > box.right + 0.5 || r.top < box.top - slack || r.bottom > box.bottom + slack) problems.push(`cut: ${name(t.text)} at the edge of its drawing`);
      const scale = svg.viewBox.baseVal.width ? box.width / svg.viewBox.baseVal.width : 1;
      const size = parseFloat(getComputedStyle(t.element).fontSize) * scale;
      if (size < 8) problems.push(`small: ${name(t.text)} is ${size.toFixed(1)} pixels high`);
      continue;
    }
    const size = parseFloat(getComputedStyle(t.element).fontSize);
    if (size < 11) problems.push(`small: ${name(t.text)} is ${size.toFixed(1)} pixels high`);
    if (!scrolls(t.element) && t.rect.right > width + 0.5) problems.push(`cut: ${name(t.text)} at the edge of the window`);
    for (let e = t.element; e && e !== document.body; e = e.parentElement) {
      const style = getComputedStyle(e);
      if (['hidden', 'clip'].includes(style.overflowX) && t.rect.right > e.getBoundingClientRect().right + 0.5) {
        problems.push(`cut: ${name(t.text)} at the edge of its box`);
        break;
      }
    }
  }

  // Contrast: 4.5 for texts, 3 for lines (Web Content Accessibility Guidelines 2, AA).
  const color = (text) => {
    const m = (text.match(/[\d.]+/g) || []).map(Number);
    return m.length < 3 ? null : { rgb: m.slice(0, 3), alpha: m.length > 3 ? m[3] : 1 };
  };
  const over = (top, alpha, below) => top.map((v, i) => v * alpha + below[i] * (1 - alpha));
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = color(getComputedStyle(e).backgroundColor);
      if (c && c.alpha === 1) return c.rgb;
    }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [0, 0, 0] : [255, 255, 255];
  };
  const shades = [...document.querySelectorAll('svg path.fh')].filter(visible).map((e) => ({ e, box: e.getBoundingClientRect() }));
  const seen = new Set();
  for (const t of texts) {
    const svg = t.element.closest('svg');
    const c = color(getComputedStyle(t.element)[svg ? 'fill' : 'color']);
    let below = ground(t.element);
    if (svg) {
      const x = (t.rect.left + t.rect.right) / 2, y = (t.rect.top + t.rect.bottom) / 2;
      for (const s of shades) {
        if (s.box.left < x && x < s.box.right && s.box.top < y && y < s.box.bottom) {
          const style = getComputedStyle(s.e);
          below = over(color(style.fill).rgb, parseFloat(style.fillOpacity), below);
        }
      }
    }
    const ratio = contrast(over(c.rgb, c.alpha, below), below);
    const key = `${c.rgb} ${below}`;
    if (ratio < 4.5 && !seen.has(key)) {
      seen.add(key);
      problems.push(`contrast: ${name(t.text)} has ${ratio.toFixed(2)}`);
    }
  }
  document.querySelectorAll('svg path').forEach((e) => {
    const c = color(getComputedStyle(e).stroke);
    if (!c || !visible(e) || e.classList.contains('sg')) return;
    const ratio = contrast(c.rgb, ground(e));
    if (ratio < 3 && !seen.has(`${c.rgb}`)) {
      seen.add(`${c.rgb}`);
      problems.push(`contrast: the line of class ${e.className.baseVal} has ${ratio.toFixed(2)}`);
    }
  });
  return problems;
})();
