"""The listing API on FastAPI, SQLAlchemy and aiosqlite: `uvicorn main:app`."""

from dependencies import CurrentAccount, Session
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from models import Listing
from schemas import Created, ListingCreate, ListingOut, ListingsOut
from sqlalchemy import select
from starlette.exceptions import HTTPException as StarletteHTTPException

app = FastAPI(title="Listings")


@app.exception_handler(StarletteHTTPException)
async def handle_http_exception(_request: Request, error: StarletteHTTPException) -> JSONResponse:
    """Convert every error to the same format."""
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


@app.exception_handler(RequestValidationError)
async def handle_validation_error(_request: Request, error: RequestValidationError) -> JSONResponse:
    """Return 400 for an invalid body."""
    faults = [f"{'.'.join(map(str, fault['loc'][1:]))}: {fault['msg']}" for fault in error.errors()]
    return JSONResponse({"error": "; ".join(faults)}, 400)


@app.get("/api/v1/listings", response_model=ListingsOut)
async def list_listings(session: Session, account: CurrentAccount):
    """Return the caller's active listings, newest first."""
    query = (
        select(Listing)
        .where(Listing.account_id == account.id, Listing.is_active, Listing.deleted_at.is_(None))
        .order_by(Listing.id.desc())
    )
    return {"listings": (await session.scalars(query)).all()}


@app.post("/api/v1/listings", status_code=201, response_model=Created)
async def create_listing(data: ListingCreate, session: Session, account: CurrentAccount):
    """Create a listing."""
    listing = Listing(**data.model_dump(), account_id=account.id)
    session.add(listing)
    await session.commit()
    return {"id": listing.id, "message": "listing created"}


@app.get("/api/v1/listings/{listing_id}", response_model=ListingOut)
async def get_listing(listing_id: int, session: Session, account: CurrentAccount):
    """Return one of the caller's listings."""
    listing = await session.get(Listing, listing_id)
    if listing is None:
        raise HTTPException(404, "Listing not found")
    if listing.account_id != account.id:
        raise HTTPException(403, "This listing belongs to another account")
    if listing.deleted_at is not None:
        raise HTTPException(404, "Listing not found")
    return listing
