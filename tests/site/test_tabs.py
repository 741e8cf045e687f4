"""The tabs of an operation in a browser: menus open over the page, fit a phone, and close."""

import pytest

PAGE = "kernels/classics/layernorm/"
#: LayerNorm has several fast versions, too, and so a menu before this one.
MENU = (
    "[...document.querySelectorAll('.op-menu')].find(each => each.querySelector('summary').textContent === 'Exercises')"
)


@pytest.mark.parametrize("width", [1440, 390])
def test_a_menu_fits_closes_and_leads_on(browser, address, width):
    browser.fresh(address + PAGE, width=width, height=844)
    assert browser.run("document.querySelector('.op-links [aria-current]').textContent") == "Lesson"
    assert browser.run("document.querySelector('.op-all').checkVisibility()") == (width > 1000)
    browser.run(f"{MENU}.querySelector('summary').click()")
    assert browser.run(f"{MENU}.open && {MENU}.querySelectorAll('a').length > 1")
    assert browser.run("document.documentElement.scrollWidth <= innerWidth"), "a list that is wider than the page"
    box = browser.run(f"(({{ left, right }}) => [left, right])({MENU}.querySelector('div').getBoundingClientRect())")
    assert 0 <= box[0] and box[1] <= width
    browser.run("document.querySelector('h1').dispatchEvent(new PointerEvent('pointerdown', { bubbles: true }))")
    assert not browser.run(f"{MENU}.open"), "a press elsewhere closes it"
    browser.run(f"{MENU}.querySelector('summary').focus(), {MENU}.querySelector('summary').click()")
    browser.press("Escape")
    assert not browser.run(f"{MENU}.open")
    browser.run(f"{MENU}.querySelector('summary').click()")
    browser.run(f"setTimeout(() => {MENU}.querySelector('a').click())")
    browser.wait("location.pathname.includes('/exercises/') && document.readyState === 'complete'")
    assert browser.run("document.querySelectorAll('.op-menu [aria-current=page]').length") == 1
