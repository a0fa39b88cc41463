"""The paths of the project."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter
from shop.views import ListingViewSet

router = SimpleRouter(trailing_slash=False)
router.register("listings", ListingViewSet, basename="listing")

urlpatterns = [path("api/v1/", include(router.urls))]
