"""Operations that change something on a server."""
