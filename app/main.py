"""The web app: its pages and how one gets from one to another. `planner app` starts it.

The page is a word of the link like everything else. Streamlit's own navigation would give each page a path, which its
browser side then asks in vain for the server, and would drop the rest of the link on the way.
"""

import streamlit as st

from planner.app import controls, show, state
from planner.app.views import compare, contract, cost, formulas, size

PAGES = {
    "Compare": compare.draw,
    "Size": size.draw,
    "Cost": cost.draw,
    "Formulas": formulas.draw,
    "Contract": contract.draw,
}

st.set_page_config(page_title="planner", layout="wide")
show.style()
state.begin({"page": tuple(PAGES)})
controls.sidebar()
controls.pages(PAGES)
PAGES[st.session_state["page"]]()
state.write_link()
